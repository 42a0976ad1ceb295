// Search: the best strategy of a space, by branch and bound.
#pragma once

#include <stdexcept>

#include "plan/plan.h"
#include "planner/refusal/refuse.h"
#include "planner/space/search_request.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {

/// The time limit passed before any plan that fits was found (exit 5).
class NothingFoundYet : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Least step time among the plans that fit; ties: fewer peak bytes, then canonical order. With its
/// runners-up and Pareto front (runners_up.h). Without time limit it is exact, but for `tolerance`.
/// Throws InfeasibleError with the rule (no legal strategy, more devices than the cluster has, the
/// bundled runtime on GPUs), the bytes (NothingFits) or the time (nothing that fits takes less
/// than kLongestTimeline), NothingFoundYet, and InputError where the plan would exceed the device's
/// stated peak.
Plan search(const SearchRequest& request, const CostModel& costs);

}  // namespace plimsoll
