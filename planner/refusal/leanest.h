// Leanest: visits the strategies of a space that may need little memory, from the least need on.
#pragma once

#include <functional>

#include "planner/explore/search_request.h"

namespace plimsoll {

/// Whether to end, asked before so much work is done: with 0 from any thread, else from one alone.
/// Work is counted so that it is the same on any machine. A unit takes some 0.1 ms: the first
/// bounds of a family, or a layer of a stage in a strategy that is looked at.
using Passed = std::function<bool(std::int64_t work)>;
/// Returns the work of finding so many families, or of bounding them once their layers are known.
std::int64_t work_of_families(std::size_t families);

/// A visitor of strategies.
struct LeanestVisit {
  /// Returns the most bytes of a device that a strategy of interest needs, with bytes outside the
  /// Program and without the reserve. The limit may shrink as strategies are looked at.
  std::function<Bytes()> limit;
  /// Looks at a strategy, whose index in canonical order is `index`. Returns whether to go on.
  std::function<bool(const Strategy& strategy, std::size_t index)> look;
  Passed passed;  ///< whether to end the visit
};

/// Visits every strategy unless a bound says that it needs more than the limit. Strategies that
/// need at least as much as another one that is visited are left out: larger buckets, fewer
/// recomputed layers, other rank orders of like devices. The first strategies have the smallest
/// micro-batch and whole layers recomputed, so that the limit shrinks early. Returns false where
/// `passed` ended the visit. The visited strategies do not depend on the number of threads, unless
/// `passed` depends on time.
bool visit_leanest(const SearchRequest& request, const Space& space, const LeanestVisit& visit);

}  // namespace plimsoll
