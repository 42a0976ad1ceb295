// Turns a bound beyond the clock's range into kLongestStep.
#include "planner/bounds/capped_bounds.h"

#include <algorithm>

#include "base/error.h"
#include "simulator/simulate.h"

namespace plimsoll {

Picoseconds capped(const std::function<Picoseconds()>& bound) {
  try {
    return std::min(bound(), kLongestStep);
  } catch (const InfeasibleError&) {
    return kLongestStep;
  }
}

std::vector<std::optional<Picoseconds>> capped_pipelines(const Bounds& bounds,
                                                         std::span<const Strategy> strategies,
                                                         const Bounds::Enough& enough) {
  try {
    auto found = bounds.pipelines(strategies, enough);
    for (auto& bound : found) {
      if (bound) bound = std::min(*bound, kLongestStep);
    }
    return found;
  } catch (const InfeasibleError&) {
    return std::vector<std::optional<Picoseconds>>(strategies.size(), kLongestStep);
  }
}

}  // namespace plimsoll
