// Likely changes are changes of a strategy that may run, in the order in which bounds say that they
// are worth a simulation.
#pragma once

#include <span>
#include <vector>

#include "planner/bounds/bounds.h"
#include "planner/explain/sensitivity.h"

namespace plimsoll {

/// A change that is legal, that no bound says does not fit, and that does not give the strategy of
/// the request.
struct LikelyChange {
  Fixed change;
  Picoseconds least_time;  ///< no step with it takes less
};

/// Returns the likely ones of these changes of `strategy`, least time first. The result does not
/// depend on the number of threads.
std::vector<LikelyChange> likely_changes(const ExplainRequest& request, const Bounds& bounds,
                                         const Strategy& strategy, std::span<const Fixed> changes);

/// Returns pairs of one change of each list, as one change, where the two name no common key. If
/// both are the same list, each pair comes once.
std::vector<Fixed> pairs_of(const std::vector<Fixed>& first, const std::vector<Fixed>& second);

/// How many changes are assessed at once. A fixed number makes results independent of the number of
/// threads.
inline constexpr std::size_t kAssessedAtOnce = 8;

}  // namespace plimsoll
