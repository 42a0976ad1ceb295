// Explore: evaluates the strategies of a space that may be best, and says why the others need not
// be.
#pragma once

#include <optional>
#include <vector>

#include "planner/bounds/bounds.h"
#include "planner/explore/runners_up.h"
#include "planner/explore/search_request.h"

namespace plimsoll {

/// The result of exploring a space.
struct Explored {
  std::vector<Candidate> candidates;  ///< evaluated, in canonical order
  CutCounts bounded{};                ///< cut without being evaluated
  std::int64_t duplicates = 0;        ///< have the Programs of a strategy with smaller buckets
  std::int64_t unexplored = 0;        ///< left when the search ended
  std::vector<std::size_t> may_fit;   ///< families that no bound says do not fit
  /// The least time bound of strategies that are left; absent where none is left.
  std::optional<Seconds> least_left;
};

/// Takes back the cuts by time bounds, which rest on a plan of `step` that turned out not to fit.
/// One of the strategies that were cut may be the best plan, so that they count as unexplored.
void take_back_time_cuts(Explored& explored, Seconds step);

/// Explores by best-first branch and bound over degrees, then micro-batch and recompute, then
/// bucket bytes. Strategies that cannot fit are cut first. Then the search takes the node of least
/// time bound, and sharpens it or, if it is a leaf, simulates it. A node is cut when its bounds
/// prove that none of its plans is the best, a runner-up or on the Pareto front, within
/// SearchRequest::tolerance. Allocators are replayed where they decide whether a strategy fits, and
/// for plans that are shown. Other simulated strategies are no candidates, and count as bounded.
/// Nodes are taken in rounds, against the candidates known when the round began, and ties go by
/// canonical order. So candidates and counts do not depend on the number of threads.
Explored branch_and_bound(const SearchRequest& request, const Space& space, const Bounds& bounds);

}  // namespace plimsoll
