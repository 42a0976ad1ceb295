// Question command: the command line that asks a question, with all that was typed for it.
#pragma once

#include <string>

#include "planner/cli/answers.h"

namespace plimsoll {

/// Returns "planner plan JOB --cluster ..." with each flag of the question that is not its default.
/// Threads do not change an answer and are left out.
std::string command_of(const PlanQuestion& question);
/// Returns "planner simulate JOB STRATEGY --cluster ...".
std::string command_of(const SimulationQuestion& question);

}  // namespace plimsoll
