// Explore: which strategies of a space are evaluated, and why the others need not be.
#pragma once

#include <optional>
#include <vector>

#include "planner/bounds/bounds.h"
#include "planner/explore/runners_up.h"
#include "planner/space/search_request.h"

namespace plimsoll {

/// The result of exploring a space.
struct Explored {
  std::vector<Candidate> candidates;  ///< evaluated, in canonical order
  std::vector<Pruned> bounded;        ///< cut without being evaluated, by bound
  std::int64_t duplicates = 0;        ///< same Programs as a strategy with smaller buckets
  std::int64_t unexplored = 0;        ///< left when the search ended
  std::vector<std::size_t> may_fit;   ///< families of which bounds do not say that none fits
  /// No plan that is left takes less; absent where none is left.
  std::optional<Seconds> least_left;
};

/// No stage can use more, whichever devices it is on.
Bytes largest_memory(const Cluster& cluster, std::int64_t devices);

/// Takes back the cuts by time bounds: they were made beside a plan of `step`, which turned out not
/// to fit. What was cut so may be the best plan, and counts as unexplored.
void take_back_time_cuts(Explored& explored, Seconds step);

/// All of it.
Explored explore_all(const SearchRequest& request, const CostModel& costs, const Space& space,
                     const Bounds& bounds);

/// Best-first branch and bound over degrees, then micro-batch and recompute, then bucket bytes.
/// Strategies that cannot fit are cut first. Then the node of least time bound is taken, sharpened
/// or, at a leaf, simulated; a node is cut where its bounds prove that none of its plans is the
/// best, one of the runners-up or on the Pareto front (but for SearchRequest::tolerance).
/// Allocators are replayed where they decide what fits and for what is shown; other simulated
/// strategies are no candidates, and count as bounded. Nodes are taken in rounds against what was
/// known when the round began, ties by canonical order: candidates and counts do not depend on the
/// number of threads.
Explored branch_and_bound(const SearchRequest& request, const CostModel& costs, const Space& space,
                          const Bounds& bounds);

/// How many strategies each bound says what of, by itself and without any incumbent.
struct BoundCounts {
  std::int64_t cannot_live = 0;       ///< what lives between steps does not fit
  std::int64_t cannot_fly = 0;        ///< else: with micro-batches in flight it does not fit
  std::int64_t may_fit = 0;           ///< the rest
  std::optional<Seconds> least_time;  ///< of the rest: no step is shorter, by the slowest stage
  /// How many of the rest take at least so many times as long, by their slowest stage.
  std::vector<std::pair<double, std::int64_t>> slower;
};
BoundCounts count_bounds(const SearchRequest& request, const CostModel& costs, const Space& space);
struct SpaceSummary {
  Space space;
  std::optional<BoundCounts> bounds;  ///< with a cluster
};

}  // namespace plimsoll
