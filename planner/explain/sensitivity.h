// Sensitivity: how the plan's step changes with each rate of the machine, with its memory, and with
// each choice.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/explain/assessed_change.h"
#include "planner/explain/changed_rates.h"
#include "planner/explain/explained_step.h"
#include "planner/space/space.h"

namespace plimsoll {

/// A plan to explain, with what its search held.
struct ExplainRequest {
  Target target;
  Strategy strategy;                    ///< the plan's
  Fixed held{};                         ///< choices that its search held
  std::int64_t threads = 0;             ///< as SearchRequest::threads
  std::optional<Seconds> time_limit{};  ///< for each search, as SearchRequest::time_limit
};

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
struct MemoryEffect {
  std::optional<Strategy> strategy;  ///< nothing where the search found none in its time
  Seconds step_time;
  StepRatio ratio;      ///< to the plan's step time
  bool proven = false;  ///< false: the time limit ended the search
};

struct Sensitivity {
  std::vector<RateEffect> rates;        ///< in the order of kRates
  std::vector<AssessedChange> changes;  ///< one choice changed, best first
  MemoryEffect memory;
};

/// Finds what would help the plan most. `plan` is the plan's own step. The result does not depend
/// on the number of threads; with a time limit `memory` depends on the machine.
Sensitivity sensitivity(const ExplainRequest& request, const ExplainedStep& plan);

/// Searches a target for the best plan with these choices. Runners-up are not proven, which takes
/// most of a search's time.
Plan best_plan(const ExplainRequest& request, const Target& target, const Fixed& held);

}  // namespace plimsoll
