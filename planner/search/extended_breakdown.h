// Extended breakdown: where a step of many micro-batches goes, told from two steps of few.
#pragma once

#include <optional>

#include "planner/search/search.h"
#include "predict/breakdown.h"

namespace plimsoll {

/// Two steps of few micro-batches that differ by one cycle are simulated. What the cycle adds to
/// each part of the step is added once for every cycle that the longer step has more. Nothing where
/// few micro-batches do not stand for all (fewer_micro_batches.h), where another rank is the
/// critical one of the longer step, or where the parts do not make up `step`, the step that was
/// found for all micro-batches.
std::optional<StepParts> extended_parts(const SearchRequest& request, const CostModel& costs,
                                        const Strategy& strategy, Seconds step);

}  // namespace plimsoll
