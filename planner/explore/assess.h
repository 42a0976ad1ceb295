// Assess: the step and the memory of strategies, as far as a search needs them.
#pragma once

#include <span>

#include "planner/explore/runners_up.h"
#include "planner/space/search_request.h"

namespace plimsoll {

/// Bytes that the framework may reserve on a device of `capacity`; 0 where there are none.
Bytes room_of(const SearchRequest& request, const Strategy& strategy, Bytes capacity);

/// Lowers and simulates. Of what does not fit: memory only. What an allocator takes is found out
/// where it decides; elsewhere all of it fits (confirm_memory).
Candidate assess(const SearchRequest& request, const CostModel& costs, const Strategy& strategy,
                 std::size_t index);

/// Replays the framework's allocator, which costs most, hence is asked for last. Of what does not
/// fit: memory only. What lasts too long, and frameworks with an arena, stay as they are. Stages
/// that can hardly be the fullest are not replayed. A candidate is given up with its first stage
/// that does not fit.
void confirm_memory(const SearchRequest& request, const CostModel& costs,
                    std::span<Candidate> candidates, std::int64_t threads);

}  // namespace plimsoll
