// Describe: writes results of the planner as text for a terminal.
#pragma once

#include <span>
#include <string>

#include "models/job/job.h"
#include "plan/plan.h"
#include "planner/refusal/refuse.h"
#include "planner/space/space.h"
#include "predict/evaluate.h"

namespace plimsoll {

/// Returns lines with the step time, rates, extrapolated ops and the breakdown.
std::string describe_step(const Prediction& prediction, bool makes_timing_claim);
/// Returns a line with the days, the device-hours and the cost of a training.
std::string training_line(const Training& training, DeviceKind kind);
/// Returns a line with the number of parameters of the job as it is stated.
std::string describe_parameters(const Job& job);
/// Returns a line on what ranks keep in the host's memory; nothing where they keep nothing there.
std::string describe_host(const Target& target, const Strategy& strategy,
                          std::span<const StagePrediction> stages);
/// Returns a line on the communication of each group; nothing where there is none.
std::string describe(const StepParts& parts);
/// Returns lines on the chosen strategy, its prediction, the search and the runners-up. With
/// `by_rank` the chosen plan and the runners-up are one list by step time.
std::string describe(const Plan& plan, bool by_rank = false);
/// Says why nothing fits, then has a line for each change with which something does.
std::string describe(const NothingFits& refused);
/// Returns a summary of a space: with `list` every legal strategy on a line, then what rules
/// rejected.
std::string describe(const Space& space, bool list);

}  // namespace plimsoll
