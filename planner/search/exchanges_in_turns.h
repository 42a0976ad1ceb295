// After a search, its fastest plans with experts are tried with a forward and a backward in turns.
#pragma once

#include <span>
#include <vector>

#include "planner/explore/runners_up.h"
#include "planner/explore/search_request.h"

namespace plimsoll {

/// Returns those of the fastest candidates with Strategy::overlap_expert_exchange that are legal,
/// fit by a replay of the framework's allocator, and are faster than without. There are none where
/// the framework cannot, and where the user fixed or tried the key. Bounds of such plans are weak,
/// so that the space does not vary the key. Indices go on from `first_index`. The search ends early
/// once `request.stop` returns true. The result does not depend on the number of threads.
std::vector<Candidate> exchanges_in_turns(const SearchRequest& request,
                                          std::span<const Candidate> candidates,
                                          std::size_t first_index);

}  // namespace plimsoll
