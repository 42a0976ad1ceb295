// Capped bounds: time bounds of strategies whose steps may be longer than the clock holds. Such a
// step is longer than any plan's: its bound is kLongestStep.
#pragma once

#include "planner/bounds/bounds.h"

namespace plimsoll {

/// The bound that `bound()` returns, capped.
Picoseconds capped(const std::function<Picoseconds()>& bound);
/// The bounds of Bounds::pipelines, capped.
std::vector<std::optional<Picoseconds>> capped_pipelines(const Bounds& bounds,
                                                         std::span<const Strategy> strategies,
                                                         const Bounds::Enough& enough);

}  // namespace plimsoll
