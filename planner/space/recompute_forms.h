// Recompute forms are the ways to recompute that a search tries.
#pragma once

#include <vector>

#include "planner/space/limits.h"

namespace plimsoll {

struct RecomputeForm {
  Recompute recompute = Recompute::none;
  SetOf<RecomputedModule> modules;  ///< with Recompute::modules
  bool operator==(const RecomputeForm&) const = default;
};

/// Returns sets of modules that the job has and the framework can repeat, from cheap to expensive.
/// Each has those before it. First come norms and activations, which cost no product, with
/// up-projections of latents, then MLPs and mixtures. The result is empty where the framework
/// repeats no modules.
std::vector<SetOf<RecomputedModule>> module_ladder(const Job& job, const Framework& framework,
                                                   const Strategy& strategy);

/// Returns the forms that `fixed` leaves, which `base` has. The rare ones are there only where a
/// framework has them; legal() refuses the usual ones by name.
std::vector<RecomputeForm> recompute_forms(const Job& job, const Framework& framework,
                                           const Fixed& fixed, const Strategy& base);

}  // namespace plimsoll
