// Plan origin: the command line that makes a plan again, without the paths of this machine.
#pragma once

#include "plan/plan.h"
#include "planner/cli/answers.h"

namespace plimsoll {

/// Says in words how `planner plan` made a plan, by its question and what its names stand for.
PlanOrigin origin_of(const LoadedTarget& loaded, const PlanQuestion& question);

}  // namespace plimsoll
