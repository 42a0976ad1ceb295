// Next commands: what a user would type after a result, with the files and flags that were typed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "planner/cli/held_choices.h"
#include "planner/cli/target.h"
#include "planner/refusal/refuse.h"

namespace plimsoll {

/// Returns commands that take the plan, which was written to `file`. Without a file it says how to
/// keep the plan. A framework without flags has no export.
std::vector<std::string> commands_after(const Plan& plan, const std::string& file,
                                        const TargetOptions& typed);

/// Adds what prints more than a short result, and joins commands that fit into one line.
std::vector<std::string> with_verbose(std::vector<std::string> commands);

/// Returns "planner plan JOB --cluster ..." with the flags as they were typed.
std::string plan_command(const TargetOptions& typed, const HeldOptions& held = {});
/// Returns this command with a change that makes a plan fit.
std::string plan_command(TargetOptions typed, HeldOptions held, const FittingChange& change);
/// Returns "planner simulate JOB STRATEGY --cluster ..." for another strategy.
std::string simulate_command(const TargetOptions& typed, const Strategy& strategy);

}  // namespace plimsoll
