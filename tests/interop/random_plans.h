// Random plans of other frameworks, and whether a framework's files state them.
#pragma once

#include <string>
#include <vector>

#include "interop/exports/flags_script.h"
#include "interop/imports/imported.h"
#include "plan/plan.h"
#include "tests/random_values.h"

namespace plimsoll {

/// Returns a legal plan of a framework that takes Megatron-Core's settings.
Plan random_megatron_plan(Random& random);
/// Returns a legal plan of torchtitan. Some of these choices its files cannot state.
Plan random_titan_plan(Random& random);

/// Draws plans, writes each as a file of the target and expects that reading the file gives the
/// plan again. Choices that are lost may be of the keys `losable` alone; the nearest value stands
/// for them. Each of `choices` ("cp=2", "lost", a framework) has to be among the plans.
void expect_plans_again(const char* target, Plan (*draw)(Random&), const char* file,
                        const std::vector<std::string>& losable,
                        const std::vector<const char*>& choices, const char* version = "");
/// Returns choices that plans of Megatron-Core have, and files for it state.
std::vector<const char*> megatron_choices();

}  // namespace plimsoll
