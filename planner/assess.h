// Assess: the step and the memory of one strategy, as far as a search needs them.
#pragma once

#include <functional>
#include <optional>

#include "planner/runners_up.h"
#include "planner/search.h"

namespace plimsoll {

/// Lowers, simulates and, where the framework has an allocator, replays that last, since it costs
/// most: nothing where step time and peak show that the strategy does not matter. Of what does not
/// fit: memory only.
std::optional<Candidate> assess(const SearchRequest& request, const CostModel& costs,
                                const Strategy& strategy, std::size_t index,
                                const std::function<bool(const Candidate&)>& may_matter);

}  // namespace plimsoll
