// Single changes: which one choice, made otherwise, lets a strategy fit that does not.
#include <fmt/format.h>

#include <algorithm>

#include "passes/strategy/strategy_fields.h"
#include "planner/explore/assess.h"
#include "planner/refusal/least_changes.h"

namespace plimsoll {
namespace {

/// Twice one degree, with half of another.
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

/// The strategy with one change each; some results may not be legal.
std::vector<Strategy> changed(const Strategy& strategy) {
  std::vector<Strategy> all;
  if (strategy.micro_batch > 1) {
    all.push_back(strategy);
    all.back().micro_batch = 1;
  }
  all.push_back(strategy);
  all.back().recompute = Recompute::full;
  all.back().recompute_layers = 0;
  all.back().recompute_list.clear();
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
  add_degrees(strategy, all);
  std::erase(all, strategy);
  return all;
}

}  // namespace

std::vector<std::string> single_changes(const SearchRequest& request, const CostModel& costs,
                                        const Strategy& strategy) {
  std::vector<Candidate> found;
  for (const Strategy& other : changed(strategy)) {
    if (!legal(request.job, other, request.devices)) continue;
    if (!legal(request.framework, request.job, other)) continue;
    found.push_back(assess(request, costs, other, found.size()));
  }
  confirm_memory(request, costs, found, request.threads);
  std::erase_if(found, [](const Candidate& candidate) { return !feasible(candidate); });
  std::ranges::sort(found, better);
  std::vector<std::string> lines;
  for (const Candidate& candidate : found) {
    const Bytes taken = candidate.score.reserved +
                        memory_outside_program(request.job, candidate.strategy, request.framework);
    lines.push_back(fmt::format("with {}: takes {} of a device with the reserve, a step {}",
                                fields_text(differing_fields(candidate.strategy, strategy)),
                                to_text(taken + request.reserve),
                                to_text(candidate.score.prediction.step_time)));
  }
  if (lines.empty())
    lines.push_back("no single change of its choices: planner plan finds what does");
  return lines;
}

}  // namespace plimsoll
