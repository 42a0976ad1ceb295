// Plan origin: the command line that makes a plan again, without the paths of this machine.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"
#include "planner/cli/target.h"

namespace plimsoll {

/// Says in words how `planner plan` made a plan, by its arguments and what they named.
PlanOrigin origin_of(const LoadedTarget& loaded, const TargetOptions& files,
                     const std::vector<std::string>& fix, const std::string& reserve);

/// Returns the values of --fix in a command that origin_of() wrote.
std::vector<std::string> held_choices(const PlanOrigin& origin);

}  // namespace plimsoll
