// Report explanation: what a report shows of a plan in addition to its file, found by the means of
// `planner explain`, and how well the points of a calibration foretell each other.
#pragma once

#include "models/calibration/calibration.h"
#include "planner/explain/sensitivity.h"
#include "reports/sections/explanation.h"

namespace plimsoll {

/// Simulates the plan of the request again, and finds what would change its step (sensitivity()).
/// The result does not depend on the number of threads.
Explanation explanation_for_report(const ExplainRequest& request);

/// Returns a curve for each form of matmul, each memory-bound op and each shape of collective that
/// was measured. Each point is left out and foretold from the others of its curve, as the cost
/// model does between points. The smallest and the largest size of ops and collectives are kept,
/// because nothing on one side of them is known.
MeasuredMachine measured_machine(const Calibration& calibration);

}  // namespace plimsoll
