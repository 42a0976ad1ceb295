// Lists candidates, of which legal() says which may run. They are every way to write the device
// count as cp x mp x pp x dp x sharding degree, times the values of the other choices.
#include "planner/space/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "passes/strategy/pipeline_order.h"
#include "passes/strategy/sharding_rules.h"
#include "planner/space/arrangements.h"
#include "planner/space/expert_splits.h"
#include "planner/space/recompute_forms.h"
#include "planner/space/rejections.h"

namespace plimsoll {
namespace {

constexpr const char* kNoneWithin = "--min, --max and --exclude leave no candidate";
constexpr const char* kLieAlike = "rank_order lays groups over nodes as another that is tried";
constexpr const char* kNoEffect = "--try has no effect on it, and the space without --try has it";

/// The values of each choice. A fixed choice has a single value.
class Choices {
 public:
  Choices(const Job& job, const Framework& framework, std::int64_t devices, const Fixed& fixed,
          const DeviceUnits& units, const Limits& limits)
      : job_(job),
        framework_(framework),
        devices_(devices),
        fixed_(fixed),
        units_(units),
        limits_(limits) {
    if (updates_matrices(job)) {
      base_.optimizer.flatten = Flatten::none;
      base_.owners.sharding_owner = ShardingOwner::sorted_greedy;
    }
    for (const auto& [key, value] : fixed) set_field(base_, key, value);
    if (is_placed_as_v(base_.schedule) && !is_fixed(fixed, "virtual_stages"))
      base_.pipeline.virtual_stages = 2;  // it has no other number
  }

  const Strategy& base() const { return base_; }

  ArrangementChoices arrangement_choices() const {
    ArrangementChoices choices;
    choices.schedule = !is_fixed(fixed_, "schedule");
    choices.virtual_stages = !is_fixed(fixed_, "virtual_stages");
    choices.ends = !is_fixed(fixed_, "embedding_as_layers") && !is_fixed(fixed_, "loss_as_layers");
    choices.stage_rates = [this](const Strategy& strategy) { return stage_rates(strategy); };
    choices.recompute_layers =
        !is_fixed(fixed_, "recompute_layers") && !is_fixed(fixed_, "recompute_list");
    choices.may_recompute = [this](const Strategy& strategy) {
      return is_within(limits_, strategy, "recompute_layers");
    };
    return choices;
  }

  /// Whether the ways to lay the model over its pipeline are within the limits.
  bool layout_is_within(const Strategy& strategy) const {
    return are_within(strategy,
                      {"schedule", "virtual_stages", "embedding_as_layers", "loss_as_layers"});
  }

  /// Whether the choices of with_switches() are within the limits.
  bool switches_are_within(const Strategy& strategy) const {
    return are_within(strategy, {"sequence_parallel", "split_boundary", "context_exchange",
                                 "prefetch_depth", "keep_gathered"});
  }

  /// Returns the sizes of gradient buckets that are tried.
  std::vector<Bytes> ladder() const {
    std::vector<Bytes> ladder = grad_bucket_ladder(job_);
    std::erase_if(ladder, [&](Bytes size) {
      Strategy strategy;
      strategy.gradients.bucket_bytes = size;
      return !is_within(limits_, strategy, "grad_bucket_bytes");
    });
    return ladder;
  }

  /// Returns the degrees whose product is the device count. If the fixed values allow no such
  /// product, the result is the base alone, which legal() refuses. If the limits allow none, there
  /// is none.
  std::vector<Strategy> grids() const {
    std::vector<Strategy> grids;
    for (std::int64_t cp : context_degrees()) {
      const std::int64_t beside_cp = devices_ / cp;
      for (std::int64_t mp : degrees("mp", &Strategy::mp, beside_cp)) {
        const std::int64_t beside_mp = beside_cp / mp;
        for (std::int64_t pp : degrees("pp", &Strategy::pp, beside_mp)) {
          const std::int64_t width = beside_mp / pp;
          for (std::int64_t dp : degrees("dp", &Strategy::dp, width)) {
            // The last degree is what the others leave; a fixed one must be just that.
            const std::int64_t sharding = width / dp;
            if (is_fixed(fixed_, "sharding_degree") && sharding != base_.sharding_degree) continue;
            if (!has_value_within("sharding_degree", &Strategy::sharding_degree, sharding))
              continue;
            const Strategy grid = with_degrees(cp, mp, pp, dp, sharding);
            if (is_within(limits_, grid, kAllReplicas)) grids.push_back(grid);
          }
        }
      }
    }
    if (grids.empty() && limits_.empty()) {
      grids.push_back(with_degrees(base_.cp, base_.mp, base_.pp, base_.dp, base_.sharding_degree));
    }
    return grids;
  }

  RankOrders orders(const Strategy& grid) const {
    if (is_fixed(fixed_, "rank_order")) return {{base_.rank_order}, 0};
    return rank_orders(framework_, grid, units_, [this](RankOrder order) {
      return has_value_within("rank_order", &Strategy::rank_order, order);
    });
  }

  std::vector<std::int64_t> micro_batches(const Strategy& grid) const {
    if (is_fixed(fixed_, "micro_batch")) return {base_.micro_batch};
    const std::int64_t width = grid.dp * grid.sharding_degree;
    // An indivisible batch leaves one candidate for legal() to refuse.
    if (job_.global_batch % width != 0) return {1};
    return within("micro_batch", &Strategy::micro_batch, divisors(job_.global_batch / width));
  }

  std::vector<RecomputeForm> recomputes() const {
    std::vector<RecomputeForm> forms = recompute_forms(job_, framework_, fixed_, base_);
    std::erase_if(forms, [&](const RecomputeForm& form) {
      Strategy strategy;
      strategy.recompute = form.recompute;
      strategy.recomputed.modules = form.modules;
      return !are_within(strategy, {"recompute", "recompute_modules"});
    });
    return forms;
  }

  std::vector<std::int64_t> sharding_stages(const Strategy& grid) const {
    if (is_fixed(fixed_, "sharding_stage")) return {grid.sharding_stage};
    if (grid.gathers.offload) return within("sharding_stage", &Strategy::sharding_stage, {3});
    if (grid.cp * grid.sharding_degree == 1)
      return within("sharding_stage", &Strategy::sharding_stage, {grid.sharding_stage});
    const auto& has = grid.pp > 1 ? framework_.can.ranks.pipeline_sharding_stages
                                  : framework_.can.ranks.sharding_stages;
    std::vector<std::int64_t> stages;
    if (grid.sharding_degree == 1) stages.push_back(0);  // the ranks of cp may share nothing
    for (std::int64_t stage = 1; stage <= 3; ++stage) {
      if (has.value.has(stage)) stages.push_back(stage);
    }
    if (stages.empty()) stages.push_back(1);  // for legal() to refuse
    return within("sharding_stage", &Strategy::sharding_stage, std::move(stages));
  }

  /// Returns the strategy itself, then strategies with other ways to split tokens and borders over
  /// mp, to exchange keys and values over cp and to gather parameters. Only the first may be
  /// illegal.
  std::vector<Strategy> with_switches(const Strategy& strategy) const {
    std::vector<Strategy> all = {strategy};
    if (strategy.cp > 1 && !is_fixed(fixed_, "context_exchange"))
      all.front().tokens.context_exchange = exchanges().front();
    if (strategy.mp > 1 && experts_apart(strategy)) {  // they need it
      if (!is_fixed(fixed_, "sequence_parallel")) all.front().tokens.sequence_parallel = true;
    } else if (strategy.mp > 1) {
      multiply(all, [&](const Strategy& s) { return with_tokens_split(s); });
    }
    if (strategy.cp > 1) multiply(all, [&](const Strategy& s) { return with_exchanges(s); });
    if (strategy.sharding_stage == 3) {
      multiply(all, [&](const Strategy& s) { return with_gathers(s); });
    }
    return all;
  }

  std::vector<Strategy> with_experts_split(const Strategy& grid) const {
    return expert_splits(job_, framework_, grid, fixed_, limits_);
  }

  /// Returns bucket sizes. They matter only where gradients are reduced between ranks, in buckets.
  /// Elsewhere every value gives the same plan, so that only the default is kept.
  bool has_buckets(const Strategy& strategy) const {
    if (is_fixed(fixed_, "grad_bucket_bytes") || !framework_.parallelism.overlap.grad_reduce)
      return false;
    return strategy.cp * strategy.dp * strategy.sharding_degree > 1 && strategy.sharding_stage < 3;
  }

  Verdict verdict(const Strategy& strategy) const {
    Verdict verdict = legal(job_, strategy, devices_);
    return verdict ? legal(framework_, job_, strategy) : verdict;
  }

  bool devices_differ() const { return !units_.alike; }

 private:
  std::vector<double> stage_rates(const Strategy& strategy) const {
    for (const char* key : {"layer_split", "embedding_as_layers", "loss_as_layers"}) {
      if (is_fixed(fixed_, key) || is_limited(limits_, key)) return {};
    }
    if (!units_.rate || strategy.pp == 1 || strategy.pp > total_layers(job_)) return {};
    std::vector<double> rates(std::size_t(strategy.pp), std::numeric_limits<double>::infinity());
    const Grid grid = grid_of(strategy);
    for (std::int64_t rank = 0; rank < grid.world_size(); ++rank) {
      double& rate = rates[std::size_t(grid.coordinates(rank)[std::size_t(Axis::pp)])];
      rate = std::min(rate, units_.rate(rank));
    }
    const bool alike = std::ranges::all_of(rates, [&](double rate) { return rate == rates[0]; });
    return alike ? std::vector<double>() : rates;
  }

  bool are_within(const Strategy& strategy, std::initializer_list<std::string_view> keys) const {
    return std::ranges::all_of(
        keys, [&](std::string_view key) { return is_within(limits_, strategy, key); });
  }

  /// Whether a value that has an effect in every strategy is within the limits of its key.
  template <class Value>
  bool has_value_within(std::string_view key, Value Strategy::*member, Value value) const {
    Strategy strategy;
    strategy.*member = value;
    return is_within(limits_, strategy, key);
  }

  /// Returns those of the values that are within the limits of their key.
  template <class Value>
  std::vector<Value> within(std::string_view key, Value Strategy::*member,
                            std::vector<Value> values) const {
    std::erase_if(values, [&](Value value) { return !has_value_within(key, member, value); });
    return values;
  }

  /// Returns the values of a degree where it and the later ones multiply to `rest`.
  std::vector<std::int64_t> degrees(std::string_view key, std::int64_t Strategy::*member,
                                    std::int64_t rest) const {
    if (!is_fixed(fixed_, key)) return within(key, member, divisors(rest));
    const std::int64_t value = base_.*member;
    if (value < 1 || rest % value != 0) return {};
    return {value};
  }

  /// Returns degrees of cp that split the sequence in pairs of equal chunks, if the framework has
  /// cp for the job's attention.
  std::vector<std::int64_t> context_degrees() const {
    if (is_fixed(fixed_, "cp")) return degrees("cp", &Strategy::cp, devices_);
    std::vector<std::int64_t> all = {1};
    const bool can = !context_exchanges(framework_, job_).empty();
    for (std::int64_t cp : divisors(devices_)) {
      if (can && cp > 1 && job_.sequence % (2 * cp) == 0) all.push_back(cp);
    }
    return within("cp", &Strategy::cp, std::move(all));
  }

  /// Puts after each strategy the ones that `more` makes of it.
  template <class More>
  void multiply(std::vector<Strategy>& strategies, More more) const {
    std::vector<Strategy> all;
    for (const Strategy& strategy : strategies) {
      all.push_back(strategy);
      for (Strategy& other : more(strategy)) all.push_back(std::move(other));
    }
    strategies = std::move(all);
  }

  std::vector<Strategy> with_tokens_split(const Strategy& strategy) const {
    std::vector<Strategy> others;
    if (!is_fixed(fixed_, "sequence_parallel") && framework_.parallelism.sequence_parallel) {
      others.push_back(strategy);
      others.back().tokens.sequence_parallel = true;
    }
    if (!is_fixed(fixed_, "split_boundary") && strategy.pp > 1) {
      others.push_back(strategy);
      others.back().pipeline.split_boundary = true;
    }
    return others;
  }

  std::vector<Strategy> with_exchanges(const Strategy& strategy) const {
    std::vector<Strategy> others;
    if (is_fixed(fixed_, "context_exchange")) return others;
    for (ContextExchange exchange : exchanges()) {
      if (exchange == strategy.tokens.context_exchange) continue;
      others.push_back(strategy);
      others.back().tokens.context_exchange = exchange;
    }
    return others;
  }

  /// Returns the exchanges of cp that the framework has for the job's attention.
  std::vector<ContextExchange> exchanges() const {
    const SetOf<ContextExchange> all = context_exchanges(framework_, job_);
    std::vector<ContextExchange> has;
    for (ContextExchange exchange :
         {ContextExchange::ring, ContextExchange::all_gather, ContextExchange::all_to_all}) {
      if (all.has(exchange)) has.push_back(exchange);
    }
    if (has.empty()) has.push_back(ContextExchange::ring);  // for legal() to refuse
    return has;
  }

  /// Returns strategies that gather earlier or not ahead, and that keep gathered parameters or not.
  std::vector<Strategy> with_gathers(const Strategy& strategy) const {
    std::vector<Strategy> others;
    for (const bool keep : {false, true}) {
      if (keep && is_fixed(fixed_, "keep_gathered")) continue;
      for (std::int64_t depth : {1, 0, 2}) {
        if (depth != 1 && is_fixed(fixed_, "prefetch_depth")) continue;
        if (!keep && depth == 1) continue;  // the strategy itself
        others.push_back(strategy);
        if (keep) others.back().gathers.keep = true;
        if (depth != 1) others.back().gathers.prefetch_depth = depth;
      }
    }
    return others;
  }

  Strategy with_degrees(std::int64_t cp, std::int64_t mp, std::int64_t pp, std::int64_t dp,
                        std::int64_t sharding) const {
    Strategy strategy = base_;
    strategy.cp = cp;
    strategy.mp = mp;
    strategy.pp = pp;
    strategy.dp = dp;
    strategy.sharding_degree = sharding;
    if (!is_fixed(fixed_, "sharding_stage")) strategy.sharding_stage = sharding > 1 ? 1 : 0;
    if (sharding == 1 && !is_fixed(fixed_, "sharding_owner"))
      strategy.owners.sharding_owner = Strategy().owners.sharding_owner;
    return strategy;
  }

  const Job& job_;
  const Framework& framework_;
  std::int64_t devices_;
  const Fixed& fixed_;
  const DeviceUnits& units_;
  const Limits& limits_;
  Strategy base_;
};

/// Adds candidates to a space, those with one combination of the values of `tried`. Grids come
/// first, so that degrees that break a rule count once.
class Enumeration {
 public:
  Enumeration(const Job& job, const Framework& framework, std::int64_t devices,
              const Fixed& combination, const DeviceUnits& units, const Limits& limits,
              const Tried& tried, Space& space, Rejections& rejections)
      : choices_(job, framework, devices, combination, units, limits),
        finder_(job, framework, choices_.arrangement_choices(),
                [this](const Strategy& s) {
                  return choices_.layout_is_within(s) && bool(choices_.verdict(s));
                }),
        ladder_(choices_.ladder()),
        space_(space),
        rejections_(rejections) {
    for (const TriedKey& one : tried) {
      if (is_fixed(combination, one.key)) tried_here_.push_back(one.key);
    }
  }

  void run() {
    space_.legal.set_ladder(ladder_);
    for (Strategy grid : choices_.grids()) {
      const RankOrders orders = choices_.orders(grid);
      if (orders.tried.empty()) continue;
      grid.rank_order = orders.tried.front();
      const std::size_t first = space_.legal.families().size();
      for (const Strategy& split : choices_.with_experts_split(grid)) add_grid(split);
      add_orders(first, orders);
    }
  }

 private:
  void add_grid(const Strategy& grid) {
    for (std::int64_t stage : choices_.sharding_stages(grid)) {
      Strategy staged = grid;
      staged.sharding_stage = stage;
      for (std::int64_t micro_batch : choices_.micro_batches(grid)) {
        staged.micro_batch = micro_batch;
        for (const RecomputeForm& form : choices_.recomputes()) {
          staged.recompute = form.recompute;
          staged.recomputed.modules = form.modules;
          add_switches(staged);
        }
      }
    }
  }

  /// Adds a grid's families, from `first` on, in the other rank orders. Only experts on ranks of
  /// their own have a rule for them.
  void add_orders(std::size_t first, const RankOrders& orders) {
    const std::size_t last = space_.legal.families().size();
    if (first == last) return;
    for (std::size_t i = 1; i < orders.tried.size(); ++i) {
      for (std::size_t f = first; f < last; ++f) {
        StrategyFamily family = space_.legal.families()[f];
        family.base.rank_order = orders.tried[i];
        if (experts_apart(family.base) && !choices_.verdict(family.base)) continue;
        if (choices_.devices_differ()) family.arrangements = finder_.of(family.base);
        if (family.arrangements->all.empty()) continue;
        space_.enumerated += std::int64_t(family.count());
        space_.legal.add(std::move(family));
      }
    }
    for (std::int64_t i = 0; i < orders.alike; ++i) count(kLieAlike);
  }

  void add_switches(const Strategy& strategy) {
    const bool has_effects = std::ranges::all_of(
        tried_here_, [&](std::string_view key) { return has_effect(strategy, key); });
    if (!has_effects) {
      ++space_.enumerated;
      rejections_.count_repeated(kNoEffect);
      return;
    }
    const std::vector<Strategy> all = choices_.with_switches(strategy);
    bool tried = false, added = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!choices_.switches_are_within(all[i])) continue;
      tried = true;
      if (add(all[i])) {
        added = true;
      } else if (i == 0) {
        break;  // the others break the same rule
      }
    }
    if (tried && !added) reject(all.front());
  }

  /// Whether the strategy is legal in some arrangement.
  bool add(const Strategy& strategy) {
    if (!may_be_arranged(strategy)) return false;
    StrategyFamily family;
    family.base = strategy;
    family.arrangements = finder_.of(strategy);
    if (family.arrangements->all.empty()) return false;
    const bool in_buckets = choices_.has_buckets(strategy);
    if (in_buckets && ladder_.empty()) return false;
    if (in_buckets) family.buckets = ladder_.size();
    apply(family.arrangements->all.front(), family.base);
    if (in_buckets) family.base.gradients.bucket_bytes = ladder_.front();
    space_.enumerated += std::int64_t(family.count());
    space_.legal.add(std::move(family));
    return true;
  }

  /// Checks rules that no other arrangement can mend.
  bool may_be_arranged(const Strategy& strategy) const {
    if (choices_.verdict(strategy)) return true;
    Strategy counted = strategy;
    if (!counted.pipeline.layer_split.empty() || counted.pp == 1) return false;
    counted.pipeline.embedding_as_layers = counted.pipeline.loss_as_layers = 1;
    return choices_.arrangement_choices().ends && bool(choices_.verdict(counted));
  }

  /// Counts a strategy that breaks a rule. One that limits alone leave out is no candidate.
  void reject(const Strategy& strategy) {
    const Verdict verdict = choices_.verdict(strategy);
    if (!verdict) count(verdict.reason());
  }

  void count(const std::string& reason) {
    ++space_.enumerated;
    rejections_.count(reason);
  }

  Choices choices_;
  ArrangementFinder finder_;
  std::vector<Bytes> ladder_;
  std::vector<std::string_view> tried_here_;
  Space& space_;
  Rejections& rejections_;
};

}  // namespace

Space enumerate(const Job& job, const Framework& framework, std::int64_t devices,
                const Fixed& fixed, const DeviceUnits& units, const Limits& limits,
                const Tried& tried) {
  if (devices < 1 || devices > kMostDevices) {
    throw UsageError(fmt::format("--devices must be from 1 to {}, not {}", kMostDevices, devices));
  }
  Space space;
  auto wrong = contradiction(fixed, limits);
  if (!wrong) wrong = contradiction(fixed, limits, tried);
  if (wrong) {
    space.reason = *std::move(wrong);
    return space;
  }
  Rejections rejections;
  for (const Fixed& combination : combinations(fixed, tried)) {
    Enumeration(job, framework, devices, combination, units, limits, tried, space, rejections)
        .run();
  }
  if (space.enumerated == 0) space.reason = kNoneWithin;
  if (!rejections.empty()) space.reason = rejections.commonest();
  space.rejected = rejections.take_rules();
  return space;
}

}  // namespace plimsoll
