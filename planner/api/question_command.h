// Question command: the command line that asks a question, with or without the paths of this
// machine.
#pragma once

#include <string>

#include "plan/plan.h"
#include "planner/api/questions.h"

namespace plimsoll {

/// Returns "planner plan JOB --cluster ..." with each flag of the question that is not its default.
/// Threads do not change an answer and are left out.
std::string command_of(const PlanQuestion& question);
/// Returns "planner simulate JOB STRATEGY --cluster ...".
std::string command_of(const SimulationQuestion& question);

/// Says in words how `planner plan` made a plan, by its question and what its names stand for.
PlanOrigin origin_of(const LoadedTarget& loaded, const PlanQuestion& question);

}  // namespace plimsoll
