// First plan: one that fits, found before any bound, so that a search that is stopped has it to show.
#pragma once

#include <functional>
#include <optional>

#include "planner/bounds.h"
#include "planner/runners_up.h"
#include "planner/search.h"

namespace plimsoll {

/// Families are tried from the fewest ranks for one copy of the model on, each in the smallest
/// micro-batch and with all recomputed that can be: where state is sharded, that needs least memory.
/// `capacity`: bytes of a device. Nothing where none of the first tries fits, or once `passed`.
std::optional<Candidate> first_plan(const SearchRequest& request, const CostModel& costs,
                                    const StrategyList& legal, const Bounds& bounds, Bytes capacity,
                                    const std::function<bool()>& passed);

}  // namespace plimsoll
