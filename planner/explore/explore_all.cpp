// Brute force: every strategy of a space.
#include <algorithm>

#include "base/parallel.h"
#include "planner/explore/assess.h"
#include "planner/explore/cut_reasons.h"
#include "planner/explore/explore.h"
#include "planner/explore/family_bounds.h"

namespace plimsoll {
namespace {

/// By the same bounds as branch and bound.
std::vector<std::size_t> families_that_may_fit(const SearchRequest& request, const CostModel& costs,
                                               const Space& space, const Bounds& bounds) {
  const FamilyBounds family_bounds(request.job, request.framework, bounds);
  const Bytes capacity = largest_memory(costs.cluster(), request.devices);
  const std::span<const StrategyFamily> families = space.legal.families();
  std::vector<std::size_t> may_fit;
  for (std::size_t f = 0; f < families.size(); ++f) {
    const Bytes beside =
        memory_outside_program(request.job, families[f].base, request.framework) + request.reserve;
    const Bytes room = std::max(capacity - beside, Bytes());
    const FamilyBound bound = family_bounds.takes_long(families[f])
                                  ? family_bounds.coarse(families[f], room)
                                  : family_bounds.of(families[f], room);
    if (summary_of(bound).fits) may_fit.push_back(f);
  }
  return may_fit;
}

}  // namespace

Bytes largest_memory(const Cluster& cluster, std::int64_t devices) {
  Bytes largest;
  for (const auto& [kind, count] : devices_by_kind(cluster, devices)) {
    largest = std::max(largest, device_of(cluster, kind).memory);
  }
  return largest;
}

Explored explore_all(const SearchRequest& request, const CostModel& costs, const Space& space,
                     const Bounds& bounds) {
  Explored explored;
  explored.may_fit = families_that_may_fit(request, costs, space, bounds);
  explored.candidates.resize(space.legal.size());
  for_each_index(space.legal.size(), request.threads, [&](std::size_t i) {
    explored.candidates[i] = assess(request, costs, space.legal[i], i);
    confirm_memory(request, costs, {&explored.candidates[i], 1}, 1);
  });
  return explored;
}

void take_back_time_cuts(Explored& explored, Seconds step) {
  std::vector<Pruned> kept;
  for (Pruned& bound : explored.bounded) {
    const auto reason = std::ranges::find(kReasonTexts, bound.reason) - kReasonTexts.begin();
    if (rests_on_a_plan(CutReason(reason))) {
      explored.unexplored += bound.count;
      explored.least_left = std::min(explored.least_left.value_or(step), step);
    } else {
      kept.push_back(std::move(bound));
    }
  }
  explored.bounded = std::move(kept);
}

}  // namespace plimsoll
