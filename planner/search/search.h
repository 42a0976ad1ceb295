// Search: finds the best strategy of a space, by branch and bound.
#pragma once

#include <stdexcept>

#include "plan/plan.h"
#include "planner/explore/explore.h"
#include "planner/refusal/refuse.h"

namespace plimsoll {

/// The time limit passed before any plan that fits was found (exit 5).
class NothingFoundYet : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Explore = Explored(const SearchRequest&, const Space&, const Bounds&);

/// Returns the plan of least merit() among those that fit, with its runners-up and Pareto front
/// (runners_up.h), and the plan of least step time if it is another. Ties go by fewer peak bytes,
/// then by canonical order. Without a time limit both are exact, within `tolerance` for the other
/// plans.
///
/// Throws InfeasibleError with a rule (no legal strategy, more devices than the cluster has, the
/// bundled runtime on GPUs), with bytes (NothingFits), or with a time. The last says that all plans
/// that fit take longer than kLongestTimeline. Throws NothingFoundYet, and InputError where the
/// plan would exceed the device's stated peak.
Plan search(const SearchRequest& request, Explore& explore = branch_and_bound);

}  // namespace plimsoll
