// Simulates the plan's Programs with other rates, and its neighbours with its own rates.
#include "planner/explain/sensitivity.h"

#include <algorithm>
#include <utility>

#include "base/parallel.h"
#include "planner/search/search.h"

namespace plimsoll {
namespace {

/// No plan is faster by more than this share of a step, so that no runner-up needs a proof.
constexpr double kNoRunnersUp = 1e9;

Seconds step_of(const Target& target, const Strategy& strategy, const Footprint& footprint) {
  return simulate(footprint.programs, costs_of(target, strategy), Folding::folded, Detail::none)
      .step_time;
}

std::vector<RateEffect> rate_effects(const ExplainRequest& request) {
  struct Change {
    double factor;
    Seconds RateEffect::*step;
  };
  static constexpr std::array kChanges = {Change{1 - kRateChange, &RateEffect::slower},
                                          Change{1 + kRateChange, &RateEffect::faster},
                                          Change{2, &RateEffect::doubled}};
  const Footprint footprint =
      lay_out(request.target, request.strategy, Proof::none, AllocatorReplay::leave_out);
  std::vector<RateEffect> effects(kRates.size());
  for_each_index(kRates.size() * kChanges.size(), request.threads, [&](std::size_t i) {
    RateEffect& effect = effects[i / kChanges.size()];
    const Change& change = kChanges[i % kChanges.size()];
    const Rate rate = kRates[i / kChanges.size()];
    const auto changed = with_rate(request.target, rate, change.factor);
    if (changed) effect.*change.step = step_of(*changed, request.strategy, footprint);
  });
  for (std::size_t r = 0; r < kRates.size(); ++r) {
    effects[r].rate = kRates[r];
    effects[r].is_there = effects[r].faster > Seconds();
  }
  return effects;
}

MemoryEffect memory_effect(const ExplainRequest& request, const PlanTime& plan) {
  MemoryEffect effect;
  try {
    const Plan found = best_plan(request, with_memory(request.target, 2), request.held);
    const PlanTime time = {found.prediction.step_time, found.prediction.breakdown,
                           layer_shape(found.job, found.strategy)};
    effect.strategy = found.strategy;
    effect.step_time = time.step_time;
    effect.ratio = step_ratio(*request.target.costs, time, plan);
    effect.proven = found.search.proven;
  } catch (const NothingFoundYet&) {  // the time limit came first
  }
  return effect;
}

}  // namespace

Plan best_plan(const ExplainRequest& request, const Target& target, const Fixed& held) {
  SearchRequest search_request{target, held};
  search_request.threads = request.threads;
  search_request.time_limit = request.time_limit;
  search_request.tolerance = kNoRunnersUp;
  return search(search_request);
}

Sensitivity sensitivity(const ExplainRequest& request, const ExplainedStep& plan) {
  Sensitivity result;
  const PlanTime time = time_of(request.target, plan);
  result.rates = rate_effects(request);
  const std::vector<Fixed> changes =
      single_choices(request.target, request.strategy, Reach::one_step);
  result.changes = assess_changes(request.target, request.strategy, changes, time, request.threads);
  best_first(result.changes);
  result.memory = memory_effect(request, time);
  return result;
}

}  // namespace plimsoll
