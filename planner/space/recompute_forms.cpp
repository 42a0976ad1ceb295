// Few sets of modules stand for all: each repeats what costs the least time for a byte.
#include "planner/space/recompute_forms.h"

#include <initializer_list>

#include "passes/strategy/recompute_rules.h"

namespace plimsoll {

std::vector<SetOf<RecomputedModule>> module_ladder(const Job& job, const Framework& framework,
                                                   const Strategy& strategy) {
  std::vector<SetOf<RecomputedModule>> ladder;
  if (!framework.can.repeats.recompute.value.has(Recompute::modules)) return ladder;
  using enum RecomputedModule;
  const std::initializer_list<std::initializer_list<RecomputedModule>> steps = {
      {norms, expert_activation, latent_up_projection}, {mlp, experts}};
  SetOf<RecomputedModule> all;
  for (const auto& step : steps) {
    const SetOf<RecomputedModule> before = all;
    for (const RecomputedModule module : step) {
      // Results that are cast with a delayed scale are not repeated.
      const bool is_cast = module == norms || module == expert_activation;
      if (is_cast && strategy.precision.fp8 == Fp8::delayed) continue;
      if (has_module(job, module) && framework.can.repeats.modules.value.has(module))
        all.add(module);
    }
    all = without_parts(all);
    if (!(all == before)) ladder.push_back(all);
  }
  return ladder;
}

std::vector<RecomputeForm> recompute_forms(const Job& job, const Framework& framework,
                                           const Fixed& fixed, const Strategy& base) {
  const bool is_held = is_fixed(fixed, "recompute"),
             has_sets = is_fixed(fixed, "recompute_modules");
  if (is_held && (has_sets || base.recompute != Recompute::modules))
    return {{base.recompute, base.recomputed.modules}};
  std::vector<RecomputeForm> forms;
  if (!is_held && (!has_sets || base.recomputed.modules.empty())) {
    forms = {{Recompute::none, {}}, {Recompute::selective, {}}, {Recompute::full, {}}};
    if (framework.can.repeats.recompute.value.has(Recompute::per_op))
      forms.push_back({Recompute::per_op, {}});
  }
  if (has_sets) {
    if (!base.recomputed.modules.empty())
      forms.push_back({Recompute::modules, base.recomputed.modules});
    return forms;
  }
  for (const SetOf<RecomputedModule>& set : module_ladder(job, framework, base))
    forms.push_back({Recompute::modules, set});
  if (forms.empty()) forms.push_back({Recompute::modules, {}});  // for legal() to refuse
  return forms;
}

}  // namespace plimsoll
