// Extended breakdown: divides a step of many micro-batches into its parts, from two steps of few.
#pragma once

#include <optional>

#include "predict/breakdown.h"
#include "predict/target.h"

namespace plimsoll {

/// Returns the parts of a step with all micro-batches. Two steps of few micro-batches are simulated
/// that differ by one cycle. The time that the cycle adds to each part is added once for every
/// cycle that the long step has more. Returns nothing where few micro-batches do not stand for all
/// (shorter_step.h), and where another rank is critical in the long step. Returns nothing
/// either if the parts do not sum to `step`, the time of the long step.
std::optional<StepParts> extended_parts(const Target& target, const Strategy& strategy,
                                        Seconds step);

/// Returns the breakdown of a legal strategy whose step time a search found: from these parts, or
/// by simulating the whole step.
Breakdown breakdown_of(const Target& target, const Strategy& strategy, Seconds step);

}  // namespace plimsoll
