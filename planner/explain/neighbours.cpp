// Applies choices to a strategy with what follows from them, and lists the changes near it.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "passes/strategy/expert_rules.h"
#include "passes/strategy/pipeline_order.h"
#include "passes/strategy/rank_orders.h"
#include "passes/strategy/recompute_rules.h"
#include "passes/strategy/strategy_fields.h"
#include "planner/explain/sensitivity.h"
#include "planner/space/recompute_forms.h"

namespace plimsoll {
namespace {

std::int64_t parts_of(const Strategy& strategy) {
  return strategy.pp * strategy.pipeline.virtual_stages;
}

/// Gives the ranks that mp, pp and cp leave to sharding_degree and dp. Where they leave no whole
/// number and cp was not asked for, sequences are not shared.
void fill_data_degrees(const Fixed& choices, std::int64_t devices, Strategy& strategy) {
  const bool fits = devices % (strategy.mp * strategy.pp * strategy.cp) == 0;
  if (!fits && !is_fixed(choices, "cp")) strategy.cp = 1;
  const std::int64_t model = strategy.mp * strategy.pp * strategy.cp;
  if (model > devices || devices % model != 0) return;
  const std::int64_t data = devices / model;
  if (data == strategy.dp * strategy.sharding_degree) return;
  const bool dp_is_held = is_fixed(choices, "dp");
  const bool shards_are_held = is_fixed(choices, "sharding_degree");
  if (dp_is_held && shards_are_held) return;
  if (dp_is_held) {
    if (data % strategy.dp == 0) strategy.sharding_degree = data / strategy.dp;
  } else if (shards_are_held) {
    if (data % strategy.sharding_degree == 0) strategy.dp = data / strategy.sharding_degree;
  } else if (strategy.sharding_degree > 1 || strategy.dp == 1) {
    if (data % strategy.dp != 0) strategy.dp = 1;
    strategy.sharding_degree = data / strategy.dp;
  } else {
    strategy.dp = data;
  }
}

/// Sets choices to their default where they would mean nothing.
void drop_meaningless(const Fixed& choices, Strategy& strategy) {
  const auto drop = [&](std::string_view key) {
    if (!is_fixed(choices, key)) reset_field(strategy, key);
  };
  if (strategy.mp == 1) drop("sequence_parallel");
  // Experts on ranks of their own need the tokens split over mp.
  if (needs_sequence_parallel(strategy) && !is_fixed(choices, "sequence_parallel"))
    strategy.tokens.sequence_parallel = true;
  if (strategy.mp == 1 || strategy.pp == 1 || strategy.tokens.sequence_parallel)
    drop("split_boundary");
  if (strategy.pp == 1) {
    drop("virtual_stages");
    drop("embedding_as_layers");
    drop("loss_as_layers");
  }
  if (strategy.schedule != Schedule::one_f_one_b) drop("virtual_stages");
  if (is_placed_as_v(strategy.schedule) && !is_fixed(choices, "virtual_stages"))
    strategy.pipeline.virtual_stages = 2;
  if (strategy.cp == 1) drop("context_exchange");
  // Frameworks compute shared experts beside an exchange of rows, if beside anything.
  if (strategy.ep == 1 || strategy.experts.dispatch != ExpertDispatch::all_to_all)
    drop("overlap_shared_experts");
  if (!pairs_are_legal(strategy)) drop("overlap_expert_exchange");
  if (strategy.recompute != Recompute::modules) drop("recompute_modules");
  if (strategy.recompute == Recompute::none || strategy.recompute == Recompute::per_op) {
    drop("recompute_layers");
    drop("recompute_list");
  }
  if (strategy.offloaded.percent == 0) drop("offload_activations_layers");
  if (is_fixed(choices, "recompute_layers")) drop("recompute_list");
  if (strategy.sharding_stage != 3) {
    drop("prefetch_depth");
    drop("keep_gathered");
  }
}

/// Collects changes that give strategies other than those before.
class Changes {
 public:
  Changes(const Target& target, const Strategy& strategy) : target_(target), known_{strategy} {}

  void add(Fixed change) {
    const Strategy changed = with_choices(known_.front(), change, target_.devices);
    if (std::ranges::find(known_, changed) != known_.end()) return;
    known_.push_back(changed);
    all_.push_back(std::move(change));
  }
  void add(std::string_view key, std::int64_t value) {
    add({{std::string(key), std::to_string(value)}});
  }
  void add(std::string_view key, std::string_view value) {
    add({{std::string(key), std::string(value)}});
  }
  std::vector<Fixed> all() && { return std::move(all_); }

 private:
  const Target& target_;
  std::vector<Strategy> known_;
  std::vector<Fixed> all_;
};

std::vector<std::int64_t> divisors_of(std::int64_t number) {
  std::vector<std::int64_t> all;
  for (std::int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    all.push_back(d);
    if (d != number / d) all.push_back(number / d);
  }
  std::ranges::sort(all);
  return all;
}

/// Returns the values that a change may go to: all but `own`, or the nearest on each side of it.
std::vector<std::int64_t> reached(const std::vector<std::int64_t>& ascending, std::int64_t own,
                                  Reach reach) {
  std::vector<std::int64_t> values;
  const auto below = std::ranges::lower_bound(ascending, own);
  const auto above = std::ranges::upper_bound(ascending, own);
  if (reach != Reach::one_step) {
    values.assign(ascending.begin(), below);
    values.insert(values.end(), above, ascending.end());
    return values;
  }
  if (below != ascending.begin()) values.push_back(*std::prev(below));
  if (above != ascending.end()) values.push_back(*above);
  return values;
}

constexpr std::array<std::pair<std::string_view, std::int64_t Strategy::*>, 3> kModelDegrees = {
    {{"mp", &Strategy::mp}, {"pp", &Strategy::pp}, {"cp", &Strategy::cp}}};

/// Adds other degrees. The data-parallel ranks take what they leave, or another degree does.
void add_degrees(const Target& target, const Strategy& strategy, Reach reach, Changes& changes) {
  const std::vector<std::int64_t> all = divisors_of(target.devices);
  const bool has_cp = !context_exchanges(target.framework(), target.job).empty();
  for (const auto& [key, degree] : kModelDegrees) {
    if (degree == &Strategy::cp && !has_cp) continue;
    for (const std::int64_t value : reached(all, strategy.*degree, reach)) {
      changes.add(key, value);
      for (const auto& [other_key, other] : kModelDegrees) {
        const std::int64_t product = strategy.*degree * strategy.*other;
        if (other == degree || product % value != 0) continue;
        changes.add({{std::string(key), std::to_string(value)},
                     {std::string(other_key), std::to_string(product / value)}});
      }
    }
  }
  const std::int64_t data = strategy.dp * strategy.sharding_degree;
  for (const std::int64_t shards : reached(divisors_of(data), strategy.sharding_degree, reach)) {
    changes.add(
        {{"sharding_degree", std::to_string(shards)}, {"dp", std::to_string(data / shards)}});
  }
}

void add_sizes(const Target& target, const Strategy& strategy, Reach reach, Changes& changes) {
  const std::int64_t width = strategy.dp * strategy.sharding_degree;
  if (target.job.global_batch % width == 0) {
    const auto sizes = divisors_of(target.job.global_batch / width);
    for (const std::int64_t size : reached(sizes, strategy.micro_batch, reach))
      changes.add("micro_batch", size);
  }
  std::vector<std::int64_t> chunks;
  for (std::int64_t v = 1; strategy.pp > 1 && v * strategy.pp <= target.job.layers; ++v) {
    // With an even number of layers in each chunk: others are seldom legal.
    if (v == 1 || target.job.layers % (v * strategy.pp) == 0) chunks.push_back(v);
  }
  for (const std::int64_t v : reached(chunks, strategy.pipeline.virtual_stages, reach))
    changes.add("virtual_stages", v);
}

void add_recompute(const Target& target, const Strategy& strategy, Reach reach, Changes& changes) {
  for (const Recompute form :
       {Recompute::none, Recompute::selective, Recompute::full, Recompute::per_op}) {
    if (form == strategy.recompute || !target.framework().can.repeats.recompute.value.has(form))
      continue;
    changes.add({{"recompute", std::string(to_text(form))}, {"recompute_layers", "0"}});
  }
  for (const SetOf<RecomputedModule>& set :
       module_ladder(target.job, target.framework(), strategy)) {
    Strategy changed = strategy;
    changed.recomputed.modules = set;
    changes.add({{"recompute", std::string(to_text(Recompute::modules))},
                 {"recompute_modules", field_text(changed, "recompute_modules")},
                 {"recompute_layers", "0"}});
  }
  if (strategy.recompute != Recompute::full && strategy.recompute != Recompute::selective) return;
  const std::int64_t most = (target.job.layers + parts_of(strategy) - 1) / parts_of(strategy);
  std::vector<std::int64_t> counts;
  for (std::int64_t n = 1; n < most; ++n) counts.push_back(n);
  counts.push_back(most);
  const std::int64_t own = strategy.recomputed.layers == 0 ? most : strategy.recomputed.layers;
  for (const std::int64_t n : reached(counts, own, reach))
    changes.add("recompute_layers", n == most ? 0 : n);
  changes.add("recompute_layers", std::int64_t{0});
}

void add_switches(const Target& target, const Strategy& strategy, Changes& changes) {
  const Framework& framework = target.framework();
  for (std::size_t s = 0; s < std::size(kSchedules); ++s) {
    if (framework.can.pipelines.schedules.value.has(Schedule(s)) && strategy.pp > 1)
      changes.add("schedule", kSchedules[s]);
  }
  if (strategy.mp > 1)
    changes.add("sequence_parallel", strategy.tokens.sequence_parallel ? "false" : "true");
  if (strategy.mp > 1 && strategy.pp > 1 && framework.can.pipelines.split_boundary.value)
    changes.add("split_boundary", strategy.pipeline.split_boundary ? "false" : "true");
  for (std::size_t e = 0; strategy.cp > 1 && e < std::size(kContextExchanges); ++e) {
    if (context_exchanges(framework, target.job).has(ContextExchange(e)))
      changes.add("context_exchange", kContextExchanges[e]);
  }
  for (std::int64_t stage = 1; strategy.sharding_degree > 1 && stage <= 3; ++stage)
    changes.add("sharding_stage", stage);
  if (strategy.sharding_stage == 3) {
    changes.add("keep_gathered", strategy.gathers.keep ? "false" : "true");
    for (const std::int64_t depth : {0, 1, 2}) changes.add("prefetch_depth", depth);
  }
  for (const RankOrder order : rank_orders(framework, strategy, units_of(target.cluster())).tried)
    changes.add("rank_order", kRankOrders[std::size_t(order)]);
  if (!strategy.pipeline.layer_split.empty()) changes.add("layer_split", "even");
}

void add_buckets(const Target& target, const Strategy& strategy, Reach reach, Changes& changes) {
  const bool reduces = strategy.cp * strategy.dp * strategy.sharding_degree > 1;
  if (!reduces || !target.framework().parallelism.overlap.grad_reduce ||
      strategy.sharding_stage == 3)
    return;
  std::vector<std::int64_t> sizes;
  for (const Bytes size : grad_bucket_ladder(target.job)) sizes.push_back(size.count());
  for (const std::int64_t size : reached(sizes, strategy.gradients.bucket_bytes.count(), reach))
    changes.add("grad_bucket_bytes", size);
}

/// Adds what frees the memory of logits, gradients and activations, and may let a layout fit whose
/// step is shorter; or what goes without it.
void add_freed_memory(const Target& target, const Strategy& strategy, Changes& changes) {
  const Job& job = target.job;
  const Capabilities& can = target.framework().can;
  if (can.repeats.loss_chunks.value || strategy.loss_chunks > 1) {
    const std::int64_t chunks = usual_loss_chunks(job.vocab, job.hidden, job.sequence);
    changes.add("loss_chunks", strategy.loss_chunks > 1 ? 1 : chunks);
  }
  if (strategy.gradients.release || (can.precision.release_gradients.value && job.clip_norm == 0))
    changes.add("release_gradients", strategy.gradients.release ? "false" : "true");
  if (strategy.offloaded.percent > 0) {
    changes.add("offload_activations_percent", std::int64_t{0});
  } else if (target.cluster().device.kind != DeviceKind::cpu_core &&
             can.offload.activations.value.has(ActivationOffload::all_layers)) {
    changes.add("offload_activations_percent", std::int64_t{100});
  }
}

void add_memory_savers(const Target& target, const Strategy& strategy, Changes& changes) {
  const std::int64_t data = strategy.dp * strategy.sharding_degree;
  for (const std::int64_t stage : {2, 3}) {
    changes.add({{"sharding_degree", std::to_string(data)},
                 {"dp", "1"},
                 {"sharding_stage", std::to_string(stage)}});
  }
  const bool apart = target.cluster().device.kind != DeviceKind::cpu_core;
  if (apart && target.framework().can.offload.optimizer.value) {
    for (const std::int64_t percent : {50, 100}) {
      if (percent > strategy.optimizer.offload_percent)
        changes.add("offload_optimizer_percent", percent);
    }
  }
  if (apart && target.framework().can.offload.paged_states.value && !strategy.optimizer.paged)
    changes.add({{"paged_states", "true"}});
  if (strategy.ep > 1) changes.add("expert_rows_percent", std::int64_t{100});
}

}  // namespace

Strategy with_choices(const Strategy& strategy, const Fixed& choices, std::int64_t devices) {
  Strategy changed = strategy;
  for (const auto& [key, value] : choices) set_field(changed, key, value);
  fill_data_degrees(choices, devices, changed);
  if (!is_fixed(choices, "sharding_stage")) {
    if (changed.sharding_degree > 1 && changed.sharding_stage == 0) changed.sharding_stage = 1;
    if (changed.sharding_degree == 1 && changed.cp == 1) changed.sharding_stage = 0;
  }
  drop_meaningless(choices, changed);
  if (parts_of(changed) != parts_of(strategy) && !is_fixed(choices, "layer_split"))
    changed.pipeline.layer_split.clear();
  return changed;
}

std::vector<Fixed> neighbours(const Target& target, const Strategy& strategy, Reach reach) {
  Changes changes(target, strategy);
  add_degrees(target, strategy, reach, changes);
  add_sizes(target, strategy, reach, changes);
  add_recompute(target, strategy, reach, changes);
  add_switches(target, strategy, changes);
  add_buckets(target, strategy, reach, changes);
  add_freed_memory(target, strategy, changes);
  if (reach == Reach::to_fit) add_memory_savers(target, strategy, changes);
  return std::move(changes).all();
}

std::vector<Fixed> pairs_of(const std::vector<Fixed>& first, const std::vector<Fixed>& second) {
  std::vector<Fixed> pairs;
  for (std::size_t i = 0; i < first.size(); ++i) {
    for (std::size_t k = &first == &second ? i + 1 : 0; k < second.size(); ++k) {
      if (share_a_key(first[i], second[k])) continue;
      pairs.push_back(first[i]);
      pairs.back().insert(pairs.back().end(), second[k].begin(), second[k].end());
    }
  }
  return pairs;
}

bool share_a_key(const Fixed& a, const Fixed& b) {
  return std::ranges::any_of(a, [&](const auto& choice) { return is_fixed(b, choice.first); });
}

}  // namespace plimsoll
