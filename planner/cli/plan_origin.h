// Plan origin: the command line that makes a plan again, without the paths of this machine.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"
#include "planner/cli/held_choices.h"
#include "planner/cli/target.h"
#include "planner/cli/training_question.h"

namespace plimsoll {

/// Says in words how `planner plan` made a plan, by its arguments and what they named.
PlanOrigin origin_of(const LoadedTarget& loaded, const TargetOptions& files,
                     const HeldOptions& held, const TrainingQuestion& training,
                     const std::string& reserve, std::int64_t top = 0, bool fastest = false);

/// Returns the values of --fix, --max, --min, --exclude and --try in a command that origin_of()
/// wrote.
HeldOptions held_choices(const PlanOrigin& origin);

}  // namespace plimsoll
