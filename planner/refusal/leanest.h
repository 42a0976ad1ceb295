// Leanest: the strategies of a space that may need little memory, those that need least first.
#pragma once

#include <functional>

#include "planner/space/search_request.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {

/// Who looks at strategies, and when that ends.
struct LeanestVisit {
  /// The most bytes of a device that a strategy of interest needs, those outside its Programs
  /// included, the reserve not. The limit may shrink as strategies are looked at.
  std::function<Bytes()> limit;
  /// Says whether to go on. `index`: in canonical order.
  std::function<bool(const Strategy& strategy, std::size_t index)> look;
  std::function<bool()> passed;  ///< ends the visit
};

/// Looks at every strategy of which no bound says that it needs more than the limit, but for those
/// that need as much as an earlier one that is looked at: larger buckets, fewer recomputed layers,
/// other rank orders of like devices. The first are of the smallest micro-batch with whole layers
/// recomputed, so that the limit shrinks early. False where `passed` ended it. What is looked at is
/// the same on any number of threads, unless `passed` ended it.
bool visit_leanest(const SearchRequest& request, const CostModel& costs, const Space& space,
                   const LeanestVisit& visit);

}  // namespace plimsoll
