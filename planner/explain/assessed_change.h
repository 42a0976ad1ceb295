// Assessed change: a plan with some choices changed, simulated and set beside the plan.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/unusual_choices.h"
#include "planner/explain/changed_choices.h"
#include "planner/explain/explain_request.h"
#include "predict/plan_difference.h"

namespace plimsoll {

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
/// not depend on the number of threads. Progress counts from `before` to the changes behind it, of
/// `all`. Throws NothingFoundYet where the request is asked to stop.
std::vector<AssessedChange> assess_changes(const ExplainRequest& request, const Strategy& strategy,
                                           std::span<const Fixed> changes, const PlanTime& plan,
                                           std::size_t before, std::size_t all);
/// Assesses all changes that there are.
std::vector<AssessedChange> assess_changes(const ExplainRequest& request, const Strategy& strategy,
                                           std::span<const Fixed> changes, const PlanTime& plan);

/// Orders changes by what they bring: those that run, by merit(), then those that do not fit,
/// least need first, then all others. Equal ones keep their order.
void best_first(std::vector<AssessedChange>& changes);

/// Returns the bytes that a stage takes at least: those alive at its peak, with context and
/// reserve; on the stage that takes most.
Bytes least_need(const Target& target, const Strategy& strategy,
                 std::span<const StagePrediction> stages);

}  // namespace plimsoll
