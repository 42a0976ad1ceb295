// Changes one choice of a strategy at a time until the strategy fits.
#include <fmt/format.h>

#include <algorithm>

#include "passes/strategy/strategy_fields.h"
#include "planner/explore/assess.h"
#include "planner/refusal/least_changes.h"

namespace plimsoll {
namespace {

/// Adds strategies with twice one degree and half of another.
void add_degrees(const Strategy& strategy, std::vector<Strategy>& all) {
  for (std::int64_t Strategy::*more : {&Strategy::mp, &Strategy::pp}) {
    for (std::int64_t Strategy::*less :
         {&Strategy::dp, &Strategy::sharding_degree, &Strategy::pp, &Strategy::mp}) {
      if (more == less || strategy.*less % 2 != 0) continue;
      Strategy other = strategy;
      other.*more *= 2;
      other.*less /= 2;
      if (other.sharding_degree == 1) other.sharding_stage = 0;
      all.push_back(other);
    }
  }
}

/// Returns strategies with one change each. Some may not be legal.
std::vector<Strategy> changed(const Strategy& strategy) {
  std::vector<Strategy> all;
  if (strategy.micro_batch > 1) {
    all.push_back(strategy);
    all.back().micro_batch = 1;
  }
  all.push_back(strategy);
  drop_recompute(all.back());
  all.back().recompute = Recompute::full;
  all.push_back(strategy);
  all.back().sequence_parallel = true;
  if (strategy.dp > 1) {
    all.push_back(strategy);
    all.back().sharding_degree *= strategy.dp;
    all.back().dp = 1;
    all.back().sharding_stage = std::max<std::int64_t>(strategy.sharding_stage, 1);
  }
  for (std::int64_t stage = strategy.sharding_stage + 1; stage <= 3; ++stage) {
    all.push_back(strategy);
    all.back().sharding_stage = stage;
  }
  for (const std::int64_t percent : {50, 100}) {
    if (percent <= strategy.offload_optimizer_percent) continue;
    all.push_back(strategy);
    all.back().offload_optimizer_percent = percent;
  }
  if (strategy.ep > 1) {
    all.push_back(strategy);
    all.back().expert_rows_percent = 100;
  }
  add_degrees(strategy, all);
  std::erase(all, strategy);
  return all;
}

}  // namespace

std::vector<std::string> single_changes(const Target& target, const Strategy& strategy,
                                        std::int64_t threads) {
  std::vector<Candidate> found;
  for (const Strategy& other : changed(strategy)) {
    if (legal(target, other)) found.push_back(assess(target, other, found.size()));
  }
  confirm_memory(target, found, threads);
  std::erase_if(found, [](const Candidate& candidate) { return !feasible(candidate); });
  std::ranges::sort(found, better);
  std::vector<std::string> lines;
  for (const Candidate& candidate : found) {
    lines.push_back(fmt::format("with {}: takes {} of a device with the reserve, a step {}",
                                fields_text(differing_fields(candidate.strategy, strategy)),
                                to_text(taken_by(target, candidate) + target.reserve),
                                to_text(candidate.prediction.step_time)));
  }
  if (lines.empty())
    lines.push_back("no single change of its choices: planner plan finds what does");
  return lines;
}

}  // namespace plimsoll
