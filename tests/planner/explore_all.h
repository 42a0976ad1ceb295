// Brute force, against which searches are held.
#pragma once

#include "planner/explore/explore.h"

namespace plimsoll {

/// Evaluates every strategy of a space. Families that no bound rules out are those of a search.
Explored explore_all(const SearchRequest& request, const Space& space, const Bounds& bounds);

}  // namespace plimsoll
