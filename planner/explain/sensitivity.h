// Sensitivity: how the plan's step changes with each rate of the machine, with its memory, and with
// each choice.
#pragma once

#include <string>
#include <vector>

#include "planner/explain/assessed_change.h"
#include "planner/explain/changed_rates.h"
#include "planner/explain/explained_step.h"

namespace plimsoll {

/// A change of one rate, and the change of step time that it makes.
inline constexpr double kRateChange = 0.1;

/// The plan's step with another rate, all else being equal.
struct RateEffect {
  Rate rate = Rate::arithmetic;
  bool is_there = false;  ///< whether the cluster has such a rate; else the times mean nothing
  Seconds slower;         ///< step time with 10 % less of the rate
  Seconds faster;         ///< with 10 % more
  Seconds doubled;        ///< with twice the rate
};

/// The best plan of devices with twice the memory, found by a search that holds the same choices.
/// It is the plan itself where the search found nothing faster.
struct MemoryEffect {
  Strategy strategy;
  Seconds step_time;
  StepRatio ratio;     ///< to the plan's step time
  bool proven = true;  ///< false: the search ended before it had looked at all strategies
  Seconds least_step;  ///< no plan takes less; 0 where the search ended before it knew
};

struct Sensitivity {
  std::vector<RateEffect> rates;        ///< in the order of kRates
  std::vector<AssessedChange> changes;  ///< one choice changed, best first
  MemoryEffect memory;
};

/// How many rounds a search with twice the memory may take. Llama-3 70B on 64 GPUs is proven
/// within them, and a proof that needs many times as many finds plans late that are hardly faster.
inline constexpr std::int64_t kMostRounds = 900;

/// Finds what would help the plan most. `plan` is the plan's own step. Without a time limit the
/// search with twice the memory ends after kMostRounds, so that the result does not depend on the
/// machine or the number of threads.
Sensitivity sensitivity(const ExplainRequest& request, const ExplainedStep& plan);

/// Searches a target for the best plan with the request's choices and limits, in at most so many
/// rounds where `most_rounds` is above 0. Runners-up are not proven, which takes most of a search's
/// time.
Plan best_plan(const ExplainRequest& request, const Target& target, std::int64_t most_rounds = 0);

}  // namespace plimsoll
