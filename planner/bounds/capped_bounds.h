// Capped bounds: time bounds of strategies whose steps may exceed the clock's range. Such a step is
// longer than any plan's, so that its bound is kLongestStep.
#pragma once

#include "planner/bounds/bounds.h"

namespace plimsoll {

/// Returns the bound that `bound()` returns, capped.
Picoseconds capped(const std::function<Picoseconds()>& bound);
/// Returns the bounds of Bounds::pipelines, capped.
std::vector<std::optional<Picoseconds>> capped_pipelines(const Bounds& bounds,
                                                         std::span<const Strategy> strategies,
                                                         const Bounds::Enough& enough);

}  // namespace plimsoll
