// After a search, its fastest plans with experts are tried with other exchanges of tokens.
#pragma once

#include <span>
#include <vector>

#include "planner/explore/runners_up.h"
#include "planner/explore/search_request.h"

namespace plimsoll {

/// Returns the fastest candidates with another exchange, where that is legal, fits by a replay of
/// the framework's allocator, and is faster. Two changes are tried, neither of a key that the user
/// fixed or tried:
///   - Strategy::experts.overlap_exchange, which the space does not vary, since bounds of such
///   plans
///     are weak;
///   - expert_dispatch all_gather, which the space leaves out where it moves more in total. Within
///     nodes it may move more, and less across them.
/// Indices go on from `first_index`. The search ends early once `request.stop` returns true. The
/// result does not depend on the number of threads. It depends on the method of the search, since
/// branch and bound does not evaluate every strategy.
std::vector<Candidate> exchange_choices(const SearchRequest& request,
                                        std::span<const Candidate> candidates,
                                        std::size_t first_index);

}  // namespace plimsoll
