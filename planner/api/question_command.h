// Question command: the command line that asks a question, with or without the paths of this
// machine.
#pragma once

#include <string>

#include "plan/plan.h"
#include "planner/api/questions.h"
#include "planner/api/sweep_question.h"

namespace plimsoll {

/// Returns "planner plan JOB --cluster ..." with each flag of the question that is not its default.
/// Threads do not change an answer and are left out.
std::string command_of(const PlanQuestion& question);
/// Returns "planner simulate JOB STRATEGY --cluster ...".
std::string command_of(const SimulationQuestion& question);
/// Returns "planner sweep JOB --cluster ...", without paths and outputs.
std::string command_of(const SweepQuestion& question);
/// Returns the name of a preset as it is, and of a path the file's name alone.
std::string file_name(const std::string& name_or_path);

/// Says in words how `planner plan` made a plan, by its question and what its names stand for.
PlanOrigin origin_of(const LoadedTarget& loaded, const PlanQuestion& question);

}  // namespace plimsoll
