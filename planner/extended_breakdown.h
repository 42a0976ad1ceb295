// Extended breakdown: where a step of many micro-batches goes, told from two steps of few.
#pragma once

#include <optional>

#include "planner/breakdown.h"
#include "planner/search.h"

namespace plimsoll {

/// Two steps of few micro-batches that differ by one cycle are simulated. What the cycle adds to
/// each part of the step is added once for every cycle that the longer step has more. Nothing where
/// the strategy does not repeat itself (fewer_micro_batches.h), or where the parts do not make up
/// `step`, the step that was found for all micro-batches.
std::optional<StepParts> extended_parts(const SearchRequest& request, const CostModel& costs,
                                        const Strategy& strategy, Seconds step);

}  // namespace plimsoll
