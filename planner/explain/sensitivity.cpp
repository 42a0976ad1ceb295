// Simulates the plan's Programs with other rates, and its neighbours with its own rates.
#include "planner/explain/sensitivity.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/parallel.h"
#include "planner/search/search.h"

namespace plimsoll {
namespace {

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
    check_goes_on(request);
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
  MemoryEffect effect{request.strategy, plan.step_time, {}, true, {}};
  try {
    const Plan found =
        best_plan(request, with_memory(request.target, 2), request.time_limit ? 0 : kMostRounds);
    effect.proven = found.search.proven;
    effect.least_step = found.prediction.step_time / (1 + found.search.gap);
    // Where a search ends early, the plan may be faster than all that it found.
    if (found.prediction.step_time >= plan.step_time) return effect;
    const PlanTime time = plan_time(request.target, found.strategy, found.prediction.step_time,
                                    found.prediction.breakdown);
    effect.strategy = found.strategy;
    effect.step_time = time.step_time;
    effect.ratio = step_ratio(*request.target.costs, time, plan);
  } catch (const NothingFoundYet&) {
    effect.proven = false;
  }
  return effect;
}

}  // namespace

Plan best_plan(const ExplainRequest& request, const Target& target, std::int64_t most_rounds) {
  SearchRequest search_request{target, request.constraints};
  search_request.threads = request.threads;
  search_request.time_limit = request.time_limit;
  search_request.tolerance = kNoRunnersUp;
  std::atomic<bool> ends = false;
  // A round is over when its progress is reported. Rounds do not depend on the threads.
  search_request.progress = [&, rounds = std::int64_t{0}](std::int64_t done,
                                                          std::int64_t of) mutable {
    ++rounds;
    ends = most_rounds > 0 && rounds >= most_rounds;
    if (!request.progress) return;
    // Rounds, where their number ends the search, say better than strategies how much is left.
    most_rounds > 0 ? request.progress(std::min(rounds, most_rounds), most_rounds)
                    : request.progress(done, of);
  };
  search_request.stop = [&] { return ends.load() || (request.stop && request.stop()); };
  return search(search_request);
}

Sensitivity sensitivity(const ExplainRequest& request, const ExplainedStep& plan) {
  Sensitivity result;
  const PlanTime time = time_of(request.target, plan);
  result.rates = rate_effects(request);
  const std::vector<Fixed> changes = neighbours(request.target, request.strategy, Reach::one_step);
  result.changes = assess_changes(request, request.strategy, changes, time);
  best_first(result.changes);
  result.memory = memory_effect(request, time);
  return result;
}

}  // namespace plimsoll
