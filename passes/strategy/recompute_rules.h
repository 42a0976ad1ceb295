// Rules of the modules that backward repeats by themselves.
#pragma once

#include "passes/strategy/strategy.h"

namespace plimsoll {

/// Returns whether some layer of the job has the module.
bool has_module(const Job& job, RecomputedModule module);

/// Checks that recompute_modules goes with the strategy, and that the job has each module. Where
/// one module is part of another only the larger one is named, so that each choice has one text.
Verdict modules_are_legal(const Job& job, const Strategy& strategy);

/// Returns the modules without those that are part of another one of them.
SetOf<RecomputedModule> without_parts(SetOf<RecomputedModule> modules);

}  // namespace plimsoll
