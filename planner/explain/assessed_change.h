// Assessed change: a strategy with some choices changed, simulated and set against the plan that is
// explained.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "passes/strategy/constraints.h"
#include "passes/strategy/strategy.h"
#include "plan/unusual_choices.h"
#include "planner/bounds/bounds.h"
#include "planner/explain/neighbours.h"
#include "predict/plan_difference.h"
#include "predict/target.h"

namespace plimsoll {

/// A plan to explain, with what its search held.
struct ExplainRequest {
  Target target;
  Strategy strategy;                    ///< the plan's
  Constraints constraints{};            ///< of its search
  double overflow = 0;                  ///< the plan's own MemoryInterval::overflow
  std::int64_t threads = 0;             ///< as SearchRequest::threads
  std::optional<Seconds> time_limit{};  ///< for each search, as SearchRequest::time_limit
  /// Ends searches, as SearchRequest::stop. Other work that it ends throws NothingFoundYet.
  std::function<bool()> stop{};
  /// Is told how far a search, or a list of changes, is: in strategies, changes or rounds.
  std::function<void(std::int64_t done, std::int64_t of)> progress{};
};

/// Throws NothingFoundYet if the request was asked to stop.
void check_goes_on(const ExplainRequest& request);

enum class ChangeOutcome : std::uint8_t { runs, does_not_fit, too_long, illegal };
/// Returns "runs", "does not fit", "takes too long", "illegal".
std::string_view to_text(ChangeOutcome outcome);

struct AssessedChange {
  Fixed change;       ///< the choices that were changed; others followed (with_choices())
  Strategy strategy;  ///< with the change
  ChangeOutcome outcome = ChangeOutcome::illegal;
  std::string rule;  ///< illegal: the rule that it breaks, with the rule's source
  /// The most bytes that a stage takes of a device, with context. Where it does not fit, they are
  /// those alive at once, and an allocator takes more.
  Bytes need;
  Seconds step_time;  ///< where it runs
  StepRatio ratio;    ///< where it runs: to the plan's step time
  /// Where it runs: unusual choices that count against it, which the changed strategy has and the
  /// one before does not.
  std::vector<Unusual> unusual;
};
/// Returns the step time by which changes that run are compared, with what unusual choices count.
Seconds merit(const AssessedChange& change);

/// Changes a strategy in each of these ways, and assesses all results. Each is lowered and
/// simulated, and its allocators are replayed. The results are in the order of the changes, and do
/// not depend on the number of threads. Progress counts from `before`, `of` all changes there are;
/// absent: of these. Throws NothingFoundYet if the request is asked to stop.
std::vector<AssessedChange> assess_changes(const ExplainRequest& request, const Strategy& strategy,
                                           std::span<const Fixed> changes, const PlanTime& plan,
                                           std::size_t before = 0,
                                           std::optional<std::size_t> of = {});

/// Orders changes by what they bring: those that run, by merit(), then those that do not fit,
/// least need first, then all others. Equal ones keep their order.
void best_first(std::vector<AssessedChange>& changes);

/// A search ends after so many assessed changes.
inline constexpr std::size_t kMostAssessedChanges = 96;

/// A Wanted says what to find among many changes.
struct Wanted {
  std::size_t most = 0;             ///< so many of the fastest
  std::optional<Seconds> below{};   ///< their merit() is less
  bool one_of_each_choice = false;  ///< of changes of the same choices to other values the fastest
};
/// The fastest of many changes, best first.
struct Fastest {
  std::vector<AssessedChange> found;
  /// Whether bounds prove that no other change is faster than the first that is named. It is false
  /// if the search ended after kMostAssessedChanges, or if the request was asked to stop.
  bool proven = true;
};
/// Finds the fastest changes of a strategy that run. Changes are assessed in the order of their
/// least time by bounds. Those that are illegal, that no bound lets fit, or that give the strategy
/// of the request are left out. The result does not depend on the number of threads.
Fastest fastest(const ExplainRequest& request, const Bounds& bounds, const Strategy& strategy,
                std::span<const Fixed> changes, const PlanTime& plan, const Wanted& wanted);

/// Returns the bytes that a stage takes at least: those alive at its peak, with context and
/// reserve; on the stage that takes most.
Bytes least_need(const Target& target, const Strategy& strategy,
                 std::span<const StagePrediction> stages);

}  // namespace plimsoll
