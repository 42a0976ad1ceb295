// Describe: results of the planner as text for a terminal.
#pragma once

#include <span>
#include <string>

#include "models/job/job.h"
#include "plan/plan.h"
#include "planner/explore/explore.h"
#include "planner/refusal/refuse.h"
#include "predict/evaluate.h"

namespace plimsoll {

/// Step time, rates, what is extrapolated, and the breakdown; several lines, ends with a newline.
std::string describe_step(const Prediction& prediction, bool makes_timing_claim);
/// How many parameters a job has, as it is stated; one line.
std::string describe_parameters(const Job& job);
/// Says what communication does to the step, by group: a line each, or nothing where there is none.
std::string describe(const StepParts& parts);
/// The chosen strategy, its prediction, the search and the runners-up.
std::string describe(const Plan& plan);
/// Why nothing fits, then a line for each change with which something does.
std::string describe(const NothingFits& refused);
/// Every legal strategy, one per line, then what the rules rejected.
std::string describe(const SpaceSummary& summary, bool list);

}  // namespace plimsoll
