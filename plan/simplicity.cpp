// Strategies are scored by simplicity, and ties of a plan are found.
#include "plan/simplicity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "passes/strategy/strategy_fields.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, 8> kNoChoices = {
    "mp", "pp", "cp", "dp", "ep", "sharding_degree", "micro_batch", "grad_bucket_bytes"};

}  // namespace

Simplicity simplicity_of(const Strategy& strategy) {
  Simplicity simplicity;
  for (const std::int64_t degree : {strategy.mp, strategy.pp, strategy.cp, strategy.dp,
                                    strategy.sharding_degree, strategy.ep}) {
    simplicity.degrees += degree > 1;
  }
  for (const StrategyField& field : differing_fields(strategy, Strategy{})) {
    simplicity.choices += std::ranges::find(kNoChoices, field.key) == kNoChoices.end();
  }
  simplicity.parts = double(strategy.mp) * double(strategy.pp) * double(strategy.cp);
  return simplicity;
}

Ties ties_of(const Plan& plan) {
  Ties ties;
  ties.simplest = &plan.strategy;
  ties.simplest_step = ties.slowest_step = plan.prediction.step_time;
  Simplicity least = simplicity_of(plan.strategy);
  const auto add = [&](const Strategy& strategy, Seconds step, const StepRatio& ratio) {
    ++ties.shown;
    if (!ratio.tied) return;
    const double open = std::sqrt(ratio.high / ratio.low) - 1;
    ties.least_open = ties.count == 0 ? open : std::min(ties.least_open, open);
    ties.most_open = std::max(ties.most_open, open);
    ties.slowest_step = std::max(ties.slowest_step, step);
    ++ties.count;
    const Simplicity simplicity = simplicity_of(strategy);
    if (!(simplicity < least)) return;
    least = simplicity;
    ties.simplest = &strategy;
    ties.simplest_step = step;
  };
  for (const RunnerUp& one : plan.runners_up) add(one.strategy, one.step_time, one.ratio);
  for (const ParetoPlan& one : plan.pareto) {
    const bool known = one.strategy == plan.strategy ||
                       std::ranges::find(plan.runners_up, one.strategy, &RunnerUp::strategy) !=
                           plan.runners_up.end();
    if (!known) add(one.strategy, one.step_time, one.ratio);
  }
  return ties;
}

}  // namespace plimsoll
