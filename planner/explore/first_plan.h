// First plan: one that fits, found before all strategies are bounded, so that a search that is
// stopped has it to show.
#pragma once

#include <functional>
#include <optional>

#include "planner/explore/family_bounds.h"
#include "planner/explore/runners_up.h"
#include "planner/space/search_request.h"

namespace plimsoll {

/// The space, its costs and its bounds, with which a first plan is looked for.
struct FirstPlanRequest {
  const SearchRequest& search;
  const CostModel& costs;
  const StrategyList& legal;
  const Bounds& bounds;
  const FamilyBounds& families;
  Bytes capacity;  ///< of a device
  std::function<bool()> passed;
};

/// First the leanest families are tried, from the fewest ranks for one copy of the model on, each
/// in the smallest micro-batch and with all recomputed that can be: where state is sharded, that
/// needs least memory. Then those of usual choices (small micro-batches, tensor parallelism within
/// a node, no context parallelism), in the order of their bounds, until one fits. The faster of
/// both, or nothing where none of these tries fits or `passed` came first.
std::optional<Candidate> first_plan(const FirstPlanRequest& request);

}  // namespace plimsoll
