// Layer choices: stage cuts and recomputed layers, stage by stage, of the strategies of a space.
// The space has even cuts and as many recomputed layers on every stage. Cuts by cost are found by
// layer_cut.h, then simulated like every other candidate.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "planner/bounds/bounds.h"
#include "planner/explore/runners_up.h"
#include "planner/space/search_request.h"

namespace plimsoll {

/// How a family's layers may be cut: what its framework has, as far as the user holds none of it.
struct LayerFreedom {
  bool cuts = false;        ///< other than even ones
  bool by_stage = false;    ///< each stage recomputes as many layers as it wants to
  bool empty_ends = false;  ///< the first and the last stage may have no layer
};
LayerFreedom layer_freedom(const Framework& framework, const Fixed& fixed);

/// Plans beside the space that are faster than `best`, each faster than the one before, and fit by
/// a replay of the framework's allocator. `families`: indices of those that may fit. Of these,
/// pipelines in 1F1B without virtual stages are cut anew, if no bound says that each cut is slower;
/// only models whose layers are all alike have them. What an allocator takes beside live bytes is
/// not known before it is replayed, so the best cuts for somewhat less memory are tried, too.
/// Indices go on behind the space's. Ends early once `passed`. The same on any number of threads.
std::vector<Candidate> layer_choices(const SearchRequest& request, const CostModel& costs,
                                     const Space& space, const Bounds& bounds,
                                     std::span<const std::size_t> families, Seconds best,
                                     const std::function<bool()>& passed);

}  // namespace plimsoll
