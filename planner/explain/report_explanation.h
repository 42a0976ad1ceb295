// Report explanation: what a report shows of a plan beside its file, found by `planner explain`'s
// means.
#pragma once

#include "planner/explain/sensitivity.h"
#include "reports/sections/explanation.h"

namespace plimsoll {

/// Simulates the plan of the request again, and finds what would change its step (sensitivity()).
/// The result does not depend on the number of threads.
Explanation explanation_for_report(const ExplainRequest& request);

}  // namespace plimsoll
