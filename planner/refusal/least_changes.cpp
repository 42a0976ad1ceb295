// Changes a request in one respect at a time until something fits.
#include "planner/refusal/least_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "passes/strategy/recompute_rules.h"
#include "planner/explore/assess.h"
#include "planner/explore/handicaps.h"

namespace plimsoll {
namespace {

/// Types that take less memory than those that are searched, fewest settings first. Among as many
/// settings the closest to f32 come first. The last ones narrow all types, and have no masters.
const std::vector<Fixed>& narrower_types() {
  static const std::vector<Fixed> all = {
      {{"main_parameter_type", "remainder"}},
      {{"gradient_type", "computed"}},
      {{"moment_type", "bf16"}},
      {{"moment_type", "fp8"}},
      {{"main_parameter_type", "f16"}},
      {{"gradient_type", "computed"}, {"main_gradient_type", "computed"}},
      {{"main_parameter_type", "remainder"}, {"moment_type", "bf16"}},
      {{"main_parameter_type", "f16"}, {"moment_type", "bf16"}},
      {{"main_parameter_type", "remainder"}, {"moment_type", "fp8"}},
      {{"main_parameter_type", "f16"}, {"moment_type", "fp8"}},
      {{"gradient_type", "computed"},
       {"main_gradient_type", "computed"},
       {"main_parameter_type", "remainder"},
       {"moment_type", "fp8"}},
      {{"gradient_type", "computed"},
       {"main_gradient_type", "computed"},
       {"main_parameter_type", "f16"},
       {"moment_type", "fp8"}},
      {{"gradient_type", "computed"},
       {"main_gradient_type", "computed"},
       {"main_parameter_type", "none"},
       {"moment_type", "bf16"}},
      {{"gradient_type", "computed"},
       {"main_gradient_type", "computed"},
       {"main_parameter_type", "none"},
       {"moment_type", "block8"}}};
  return all;
}

/// Layouts that people start from, the plainest first: shards alone, no context split, any.
const std::vector<Fixed>& plain_layouts() {
  static const std::vector<Fixed> all = {
      {{"mp", "1"}, {"pp", "1"}, {"cp", "1"}}, {{"cp", "1"}}, {}};
  return all;
}

/// The most further strategies that are visited to find one without unusual choices.
constexpr std::int64_t kMostMore = 32;

class Changes {
 public:
  Changes(const SearchRequest& request, const Passed& passed)
      : request_(request), passed_(passed) {}

  FoundChanges find(bool lasting_fits) {
    for (const FittingChange& change : without_held_choices()) {
      if (!add_first({change}, "fewer held choices")) break;
    }
    const OffloadCapabilities& offload = request_.target.framework().can.offload;
    const bool apart = request_.target.cluster().device.kind != DeviceKind::cpu_core;
    if (apart && offload.optimizer.value)
      add_offload("offload_optimizer_percent", {"50", "100"}, "states in the host's memory");
    if (apart && offload.paged_states.value) add_switch("paged_states", "paged states");
    if (apart && offload.activations.value.has(ActivationOffload::all_layers))
      add_offload("offload_activations_percent", {"100"}, "activations in the host's memory");
    if (apart && offload.parameters.value &&
        std::ranges::find(found_.fitting, ChangeKind::offload, &FittingChange::kind) ==
            found_.fitting.end())
      add_first({with(ChangeKind::offload,
                      {{"offload_parameters", "true"}, {"offload_optimizer_percent", "100"}})},
                "parameters in the host's memory");
    if (request_.target.job.adapters) add_packed();
    add_chunked_loss();
    add_released_gradients();
    add_more_devices();
    if (request_.target.job.experts) add_even_routing();
    std::vector<FittingChange> narrower;
    for (const Fixed& types : narrower_types()) narrower.push_back(with(ChangeKind::other, types));
    add_first(narrower, "narrower types of gradients and optimizer states");
    if (lasting_fits) add_first(smaller_batches(), "smaller global batches");
    found_.proven = not_tried_.empty();
    if (!found_.proven) {
      found_.notes.push_back(fmt::format("not looked at to the end in the time there was: {}",
                                         fmt::join(not_tried_, ", ")));
    }
    return std::move(found_);
  }

 private:
  /// Returns the request with the smallest micro-batch and whole layers recomputed, unless it fixes
  /// or limits these. Modules may need less: while a layer is repeated as a whole, all that it
  /// saves is there at once. Where backward frees gradients, a micro-batch is all of a rank's step.
  static SearchRequest leanest(SearchRequest changed) {
    const auto is_free = [&](std::string_view key) {
      return !is_fixed(changed.constraints.fixed, key) &&
             !is_limited(changed.constraints.limits, key);
    };
    if (is_free("micro_batch") && is_free("release_gradients"))
      changed.constraints.fixed.emplace_back("micro_batch", "1");
    const SetOf<Recompute> forms = changed.target.framework().can.repeats.recompute.value;
    const bool may_repeat_all = is_free("recompute") && is_free("recompute_list") &&
                                is_free("recompute_modules") &&
                                !is_limited(changed.constraints.limits, "recompute_layers");
    if (!forms.has(Recompute::full) || !may_repeat_all) return changed;
    if (!forms.has(Recompute::modules)) {
      changed.constraints.fixed.emplace_back("recompute", "full");
      return changed;
    }
    for (const Recompute form : {Recompute::none, Recompute::selective, Recompute::per_op})
      changed.constraints.limits.push_back(
          make_limit(LimitKind::excluded, "recompute", to_text(form)));
    return changed;
  }

  /// Returns a plan that fits, of the plainest layouts that any fits of: the first without unusual
  /// choices, or the best of the next kMostMore if all of them have some.
  std::optional<Candidate> find_plan(const SearchRequest& changed) const {
    for (const Fixed& layout : plain_layouts()) {
      SearchRequest plain = changed;
      for (const auto& choice : layout) {
        if (!is_fixed(changed.constraints.fixed, choice.first) &&
            !is_limited(changed.constraints.limits, choice.first))
          plain.constraints.fixed.push_back(choice);
      }
      if (auto found = find_in(plain)) {
        if (!is_fixed(changed.constraints.fixed, "micro_batch") &&
            !is_limited(changed.constraints.limits, "micro_batch"))
          enlarge_micro_batch(plain, *found);
        return found;
      }
      if (plain.constraints.fixed.size() == changed.constraints.fixed.size())
        break;  // the rest is the same space
    }
    return std::nullopt;
  }

  /// Doubles the micro-batch of a plan as long as that is better.
  void enlarge_micro_batch(const SearchRequest& request, Candidate& plan) const {
    const Handicaps handicaps(request);
    while (!passed_(0)) {
      Strategy larger = plan.strategy;
      larger.micro_batch *= 2;
      if (!legal(request.target, larger)) return;
      Candidate found = assess(request.target, larger, plan.index);
      confirm_memory(request.target, {&found, 1}, request.threads);
      handicaps.weigh(found);
      if (!feasible(found) || !better(found, plan)) return;
      plan = std::move(found);
    }
  }

  std::optional<Candidate> find_in(const SearchRequest& changed) const {
    if (passed_(0)) return std::nullopt;
    const SearchRequest request = leanest(changed);
    const Target& target = request.target;
    const Space space = enumerate(request);
    if (space.legal.empty() || passed_(work_of_families(space.legal.families().size())))
      return std::nullopt;
    const Bytes limit = std::max(largest_memory(target) - target.reserve, Bytes());
    const Handicaps handicaps(request);
    std::optional<Candidate> fits;
    std::int64_t more = kMostMore;
    const auto look = [&](const Strategy& strategy, std::size_t index) {
      if (fits && !handicaps.of(strategy, Bytes()).empty()) return --more > 0;
      Candidate found = assess(target, strategy, index);
      confirm_memory(target, {&found, 1}, request.threads);
      handicaps.weigh(found);
      if (feasible(found) && (!fits || better(found, *fits))) fits = std::move(found);
      return !fits || (!fits->unusual.empty() && --more > 0);
    };
    visit_leanest(request, space, {[&] { return limit; }, look, passed_});
    return fits;
  }

  /// A change with a plan that fits then.
  struct Fitting {
    FittingChange change;
    Candidate plan;
  };

  /// Returns whether the request holds what a change sets, so that the change cannot apply.
  bool holds(const FittingChange& change) const {
    return std::ranges::any_of(change.fix, [&](const auto& choice) {
      return is_fixed(request_.constraints.fixed, choice.first);
    });
  }

  SearchRequest changed(const FittingChange& change) const {
    SearchRequest result = request_;
    Constraints& constraints = result.constraints;
    for (const auto& choice : change.fix) {
      std::erase_if(constraints.tried,
                    [&](const TriedKey& tried) { return tried.key == choice.first; });
      constraints.fixed.push_back(choice);
    }
    free_key(constraints, change.freed);
    if (change.devices) result.target.devices = *change.devices;
    if (change.global_batch) result.target.job.global_batch = *change.global_batch;
    if (change.frozen_weights) result.target.job.frozen_weights = *change.frozen_weights;
    return result;
  }

  std::optional<Fitting> fitting(FittingChange change) const {
    const SearchRequest request = changed(change);
    std::optional<Candidate> plan;
    try {
      plan = find_plan(request);
    } catch (const InputError&) {  // some of more devices have no peak of the job's type
      if (!change.devices) throw;
    }
    if (!plan) return std::nullopt;
    change.strategy = plan->strategy;
    change.need = taken_by(request.target, *plan);
    change.step_time = plan->prediction.step_time;
    change.unusual = plan->unusual;
    return Fitting{std::move(change), std::move(*plan)};
  }

  /// Returns whether the time is over, and then notes that `what` was not tried.
  bool is_out_of_time(const std::string& what) {
    if (!passed_(0)) return false;
    not_tried_.push_back(what);
    return true;
  }

  /// Adds the first of these changes with which a plan fits. Returns whether there is time for
  /// more.
  bool add_first(const std::vector<FittingChange>& changes, const std::string& what) {
    for (const FittingChange& change : changes) {
      if (holds(change)) continue;
      if (auto found = fitting(change)) {
        found_.fitting.push_back(std::move(found->change));
        return true;
      }
      if (is_out_of_time(what)) return false;
    }
    return true;
  }

  static FittingChange with(ChangeKind kind, const Fixed& fix, std::string words = "with") {
    FittingChange change{kind, std::move(words)};
    change.fix = fix;
    for (const auto& [flag, value] : flags_of({fix}))
      change.words += fmt::format(" {} {}", flag, value);
    return change;
  }

  /// Returns changes that each free a choice.
  std::vector<FittingChange> without_held_choices() const {
    const auto& [fixed, limits, tried] = request_.constraints;
    std::vector<std::string> keys;
    for (const auto& [key, value] : fixed) keys.push_back(key);
    for (const Limit& limit : limits) {
      if (std::ranges::find(keys, limit.key) == keys.end()) keys.push_back(limit.key);
    }
    std::vector<FittingChange> changes;
    for (const std::string& key : keys) {
      Constraints held{fixed, limits, {}};
      std::erase_if(held.fixed, [&](const auto& choice) { return choice.first != key; });
      std::erase_if(held.limits, [&](const Limit& limit) { return limit.key != key; });
      FittingChange change{kind_of({{key, ""}}), "without"};
      change.freed = key;
      for (const auto& [flag, value] : flags_of(held))
        change.words += fmt::format(" {} {}", flag, value);
      changes.push_back(std::move(change));
    }
    return changes;
  }

  /// Memory for the rows of even routing alone may be enough, though a step may then get more rows.
  void add_even_routing() {
    const FittingChange even =
        with(ChangeKind::other, {{"expert_rows_percent", "100"}}, "with even routing only,");
    if (holds(even)) return;
    if (auto found = fitting(even)) {
      if (found->plan.strategy.ep > 1) found_.fitting.push_back(std::move(found->change));
    } else {
      is_out_of_time("memory for even routing only");
    }
  }

  /// The loss part by part, where the framework can.
  void add_chunked_loss() {
    const Job& job = request_.target.job;
    const std::int64_t chunks = usual_loss_chunks(job.vocab, job.hidden, job.sequence);
    if (!request_.target.framework().can.repeats.loss_chunks.value || chunks == 1) return;
    const Fixed fix = {{"loss_chunks", fmt::format("{}", chunks)}};
    add_first({with(kind_of(fix), fix)}, "a loss in chunks");
  }

  /// Updates in backward, where the framework can and the job clips no gradients.
  void add_released_gradients() {
    const bool can = request_.target.framework().can.precision.release_gradients.value;
    if (!can || request_.target.job.clip_norm > 0) return;
    add_switch("release_gradients", "gradients that backward frees");
  }

  void add_switch(const char* key, const char* what) {
    const Fixed fix = {{key, "true"}};
    add_first({with(kind_of(fix), fix)}, what);
  }

  /// Frozen weights in 4 bits, where a job can have them.
  void add_packed() {
    FittingChange change{ChangeKind::packed, "with \"frozen_weights\": \"nf4_nested\" in the job"};
    change.frozen_weights = FrozenWeights::nf4_nested;
    Job job = request_.target.job;
    job.frozen_weights = *change.frozen_weights;
    if (job == request_.target.job) return;
    try {
      check_job(job, "the job");
    } catch (const InputError&) {  // experts have no such form
      return;
    }
    add_first({change}, "frozen weights in 4 bits");
  }

  /// The host's memory takes states, which it updates more slowly than the device, or activations,
  /// which have to be copied.
  void add_offload(const char* key, std::initializer_list<const char*> percents, const char* what) {
    std::optional<Fitting> best;
    for (const char* percent : percents) {
      const FittingChange change = with(ChangeKind::offload, {{key, percent}});
      if (holds(change)) return;
      auto found = fitting(change);
      if (found && (!best || better(found->plan, best->plan))) best = std::move(found);
      if (is_out_of_time(what)) break;
    }
    if (best) found_.fitting.push_back(std::move(best->change));
  }

  std::vector<FittingChange> smaller_batches() const {
    std::vector<FittingChange> changes;
    std::int64_t batch = request_.target.job.global_batch;
    while (batch % 2 == 0) {
      batch /= 2;
      changes.push_back({ChangeKind::other, fmt::format("with a global batch of {}", batch)});
      changes.back().global_batch = batch;
    }
    return changes;
  }

  std::optional<Fitting> on(std::int64_t devices) const {
    const std::int64_t per_node = request_.target.cluster().devices_per_node;
    const std::int64_t nodes = (devices + per_node - 1) / per_node;
    FittingChange change{
        ChangeKind::more_devices,
        fmt::format("on {} ({} node{})", devices_text(devices), nodes, nodes == 1 ? "" : "s")};
    change.devices = devices;
    return fitting(std::move(change));
  }

  void add_more_devices() {
    const Cluster& cluster = request_.target.cluster();
    const std::int64_t per_node = cluster.devices_per_node;
    const std::int64_t most =
        cluster.nodes ? std::min(*cluster.nodes * per_node, kMostDevices) : kMostDevices;
    std::int64_t low = request_.target.devices, high = 0;
    std::optional<Fitting> found;
    while (!found && (high = more_devices(low, per_node, most)) > 0) {
      found = on(high);
      if (!found && is_out_of_time(fmt::format("more than {}", devices_text(low)))) return;
      if (!found) low = high;
    }
    if (!found) {
      if (low == request_.target.devices) return;  // all that there are
      found_.notes.push_back(
          fmt::format("none of the larger numbers of devices that were tried, up to {}", low));
      return;
    }
    while (const std::int64_t middle = devices_between(low, high, per_node)) {
      auto fewer = on(middle);
      if (!fewer && is_out_of_time(fmt::format("from {} to {}", low + 1, devices_text(high - 1))))
        break;
      const bool enough = fewer && handicap(fewer->plan.unusual) <= handicap(found->plan.unusual);
      (enough ? high : low) = middle;
      if (enough) found = std::move(fewer);
    }
    found_.fitting.push_back(std::move(found->change));
  }

  const SearchRequest& request_;
  const Passed& passed_;
  FoundChanges found_;
  std::vector<std::string> not_tried_;
};

}  // namespace

std::int64_t more_devices(std::int64_t low, std::int64_t per_node, std::int64_t most) {
  if (low >= most) return 0;
  if (low < per_node) return std::min({2 * low, per_node, most});
  const std::int64_t nodes = low / per_node;
  const std::int64_t next = low % per_node == 0 ? 2 * nodes : nodes + 1;
  const std::int64_t devices = std::min(next, most / per_node) * per_node;
  return devices > low ? devices : 0;
}

std::int64_t devices_between(std::int64_t low, std::int64_t high, std::int64_t per_node) {
  const std::int64_t unit = high <= per_node ? 1 : per_node;
  const std::int64_t middle = (low / unit + high / unit) / 2 * unit;
  return middle > low && middle < high ? middle : 0;
}

ChangeKind kind_of(const Fixed& change) {
  const auto of_key = [](std::string_view key) {
    if (key == "dp" || key == kAllReplicas || key.starts_with("sharding_"))
      return ChangeKind::sharding;
    if (key.starts_with("offload_") || key == "paged_states") return ChangeKind::offload;
    const bool in_parts = key == "loss_chunks" || key == "release_gradients";
    return key.starts_with("recompute") || in_parts ? ChangeKind::recompute : ChangeKind::other;
  };
  ChangeKind kind = ChangeKind::sharding;
  for (const auto& [key, value] : change) kind = std::max(kind, of_key(key));
  return kind;
}

const FittingChange* first_of(std::span<const FittingChange> changes) {
  const auto first = std::ranges::min_element(changes, {}, &FittingChange::kind);
  return first == changes.end() ? nullptr : &*first;
}

FoundChanges least_changes(const SearchRequest& request, bool lasting_fits, const Passed& passed) {
  return Changes(request, passed).find(lasting_fits);
}

}  // namespace plimsoll
