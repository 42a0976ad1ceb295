// Next commands: what a user would type after a result, with the files and flags that were typed.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"
#include "planner/api/questions.h"
#include "planner/refusal/least_changes.h"

namespace plimsoll {

/// Returns commands that take the plan of a question, which was written to `file`. Without a file
/// the command writes one. A framework without flags has no export.
std::vector<std::string> commands_after(const Plan& plan, const std::string& file,
                                        const PlanQuestion& asked);

/// Adds what prints more than a short result, and joins commands that fit into one line.
std::vector<std::string> with_verbose(std::vector<std::string> commands);

/// Returns a command that writes its result to a file; without one it is the command alone.
std::string with_output(std::string command, const std::string& file);
/// Returns the question with a change that makes a plan fit.
PlanQuestion with_change(PlanQuestion asked, const FittingChange& change);
/// Returns the search for the job of a simulation.
PlanQuestion search_of(const SimulationQuestion& asked);

}  // namespace plimsoll
