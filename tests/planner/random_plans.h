// Random plans of other frameworks, and whether a framework's files state them.
#pragma once

#include <string>
#include <vector>

#include "imports/imported.h"
#include "plan/plan.h"
#include "planner/export/flags_script.h"
#include "tests/runtime/random_values.h"

namespace plimsoll {

/// Returns a legal plan of a framework that takes Megatron-Core's settings.
Plan random_megatron_plan(Random& random);
/// Returns a legal plan of torchtitan. Some of these choices its files cannot state.
Plan random_titan_plan(Random& random);

/// Returns in what a file that was read differs from its plan, and an empty text where both say the
/// same. Choices that were lost may be of these keys alone; the nearest value stands for them.
std::string difference(const Plan& plan, const PlanFlags& flags, const Imported& read,
                       const std::vector<std::string>& losable);

}  // namespace plimsoll
