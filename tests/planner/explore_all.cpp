// Evaluates every strategy of a space, and bounds none.
#include "tests/planner/explore_all.h"

#include "base/parallel.h"
#include "planner/explore/assess.h"
#include "planner/explore/family_bounds.h"
#include "planner/explore/handicaps.h"

namespace plimsoll {
namespace {

/// Returns the families that may fit by the bounds that branch and bound uses.
std::vector<std::size_t> families_that_may_fit(const Target& target, const Space& space,
                                               const Bounds& bounds) {
  const FamilyBounds family_bounds(target, bounds);
  const Bytes capacity = largest_memory(target);
  const std::span<const StrategyFamily> families = space.legal.families();
  std::vector<std::size_t> may_fit;
  for (std::size_t f = 0; f < families.size(); ++f) {
    const Bytes room = room_for_program(target, families[f].base, capacity);
    const FamilyBound bound = family_bounds.takes_long(families[f])
                                  ? family_bounds.coarse(families[f], room)
                                  : family_bounds.work(families[f], room);
    if (summary_of(bound).fits) may_fit.push_back(f);
  }
  return may_fit;
}

}  // namespace

Explored explore_all(const SearchRequest& request, const Space& space, const Bounds& bounds) {
  Explored explored;
  explored.may_fit = families_that_may_fit(request.target, space, bounds);
  explored.candidates.resize(space.legal.size());
  const Handicaps handicaps(request);
  for_each_index(space.legal.size(), request.threads, [&](std::size_t i) {
    explored.candidates[i] = assess(request.target, space.legal[i], i);
    confirm_memory(request.target, {&explored.candidates[i], 1}, 1);
    handicaps.weigh(explored.candidates[i]);
  });
  return explored;
}

}  // namespace plimsoll
