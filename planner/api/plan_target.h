// Plan target: finds the cluster and the costs again that a plan was made with.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"
#include "planner/api/target.h"

namespace plimsoll {

/// Files that a plan names by digest only, where they are not built in.
struct PlanFiles {
  std::string plan;
  std::string cluster;                   ///< empty: the preset with the plan's digest
  std::vector<std::string> calibration;  ///< empty: the built-in one that the plan names
  GivenTexts texts;                      ///< of the cluster
};

/// Throws InputError if a digest is not the wanted one. `flag` is named in the error.
void check_same(const char* flag, const std::string& file, const std::string& found,
                const std::string& wanted);

/// Returns the plan's target. Throws UsageError where a file is not built in and not given, and
/// InputError where a file is another one, or where the plan's step time is not what these costs
/// predict.
LoadedTarget target_of_plan(const Plan& plan, const PlanFiles& files);

}  // namespace plimsoll
