// Layer choices: finds cuts into stages by cost, with recomputed layers stage by stage, which a
// space lacks. A space has even cuts and as many recomputed layers on every stage. layer_cut.h
// finds the other cuts, which are then simulated like every other candidate.
#pragma once

#include <span>
#include <vector>

#include "planner/bounds/bounds.h"
#include "planner/explore/handicaps.h"
#include "planner/explore/runners_up.h"
#include "planner/explore/search_request.h"

namespace plimsoll {

/// How a family's layers may be cut, by the framework and the choices that the user fixed or
/// limited.
struct LayerFreedom {
  bool cuts = false;        ///< other than even ones
  bool by_stage = false;    ///< each stage recomputes as many layers as it wants to
  bool empty_ends = false;  ///< the first and the last stage may have no layer
};
LayerFreedom layer_freedom(const Framework& framework, const Fixed& fixed,
                           const Limits& limits = {});

/// The plans that cuts have to beat.
struct BestSoFar {
  Seconds merit, fastest;  ///< merit() of the best plan, and the shortest step
};
/// Returns plans beside the space that are better or faster than all before them.
/// They fit by a replay of the framework's allocator. `families` are the indices of families that
/// may fit. Pipelines of these families in 1F1B without virtual stages are cut anew, if no bound
/// says that each cut is slower. Models with layers of several kinds have no such cuts. The bytes
/// of an allocator beside live bytes are not known before its replay, so that the best cuts for
/// somewhat less memory are tried, too. Indices of the plans go on behind the space's. The search
/// ends early once `request.stop` returns true. The result does not depend on the number of
/// threads.
std::vector<Candidate> layer_choices(const SearchRequest& request, const Space& space,
                                     const Bounds& bounds, std::span<const std::size_t> families,
                                     const BestSoFar& best);

}  // namespace plimsoll
