// Changes one choice of a strategy at a time until the strategy fits.
#include <fmt/format.h>

#include <algorithm>

#include "passes/strategy/strategy_fields.h"
#include "planner/explore/assess.h"
#include "planner/refusal/least_changes.h"

namespace plimsoll {
namespace {

/// A strategy with one change.
struct Changed {
  ChangeKind kind;
  Strategy strategy;
};

/// Adds strategies with twice one degree and half of another.
void add_degrees(const Strategy& strategy, std::vector<Changed>& all) {
  for (std::int64_t Strategy::*more : {&Strategy::mp, &Strategy::pp}) {
    for (std::int64_t Strategy::*less :
         {&Strategy::dp, &Strategy::sharding_degree, &Strategy::pp, &Strategy::mp}) {
      if (more == less || strategy.*less % 2 != 0) continue;
      Strategy other = strategy;
      other.*more *= 2;
      other.*less /= 2;
      if (other.sharding_degree == 1) other.sharding_stage = 0;
      all.push_back({ChangeKind::other, other});
    }
  }
}

/// Returns strategies with one change each. Some may not be legal.
std::vector<Changed> changed(const Strategy& strategy) {
  std::vector<Changed> all;
  const auto add = [&](ChangeKind kind) -> Strategy& {
    return all.emplace_back(Changed{kind, strategy}).strategy;
  };
  if (strategy.micro_batch > 1) add(ChangeKind::other).micro_batch = 1;
  Strategy& repeated = add(ChangeKind::recompute);
  drop_recompute(repeated);
  repeated.recompute = Recompute::full;
  add(ChangeKind::other).sequence_parallel = true;
  if (strategy.dp > 1) {
    Strategy& sharded = add(ChangeKind::sharding);
    sharded.sharding_degree *= strategy.dp;
    sharded.dp = 1;
    sharded.sharding_stage = std::max<std::int64_t>(strategy.sharding_stage, 1);
  }
  for (std::int64_t stage = strategy.sharding_stage + 1; stage <= 3; ++stage)
    add(ChangeKind::sharding).sharding_stage = stage;
  for (const std::int64_t percent : {50, 100}) {
    if (percent > strategy.offload_optimizer_percent)
      add(ChangeKind::offload).offload_optimizer_percent = percent;
  }
  if (strategy.ep > 1) add(ChangeKind::other).expert_rows_percent = 100;
  add_degrees(strategy, all);
  std::erase_if(all, [&](const Changed& one) { return one.strategy == strategy; });
  return all;
}

}  // namespace

FoundChanges single_changes(const Target& target, const Strategy& strategy, std::int64_t threads) {
  std::vector<ChangeKind> kinds;
  std::vector<Candidate> found;
  for (const Changed& other : changed(strategy)) {
    if (!legal(target, other.strategy)) continue;
    found.push_back(assess(target, other.strategy, found.size()));
    kinds.push_back(other.kind);
  }
  confirm_memory(target, found, threads);
  std::erase_if(found, [](const Candidate& candidate) { return !feasible(candidate); });
  std::ranges::sort(found, better);
  FoundChanges changes;
  for (const Candidate& one : found) {
    changes.fitting.push_back({kinds[one.index],
                               "with " + fields_text(differing_fields(one.strategy, strategy)),
                               one.strategy, taken_by(target, one), one.prediction.step_time});
  }
  if (found.empty())
    changes.notes.emplace_back("no single change of its choices: planner plan finds what does");
  return changes;
}

}  // namespace plimsoll
