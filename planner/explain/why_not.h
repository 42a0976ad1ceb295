// Why not: what a choice that a user asks for costs against the plan, and what would make it run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/explain/sensitivity.h"

namespace plimsoll {

/// A strategy with the asked choices, beside the plan.
struct AskedStep {
  ExplainedStep step;
  StepRatio ratio;  ///< to the plan's step time
};

/// Changes that make the asked choices legal and fit. Each was lowered, simulated and replayed.
struct LeastChanges {
  std::vector<AssessedChange> found;  ///< with as few choices each as any that helps, fastest first
  std::size_t choices = 0;            ///< in each of these: 1 or 2 single changes
  /// Whether the changes leave the asked choices as they were asked. If nothing else helps, the
  /// asked choices are changed.
  bool keeps_asked = true;
};

struct WhyNot {
  Fixed asked;
  ExplainedStep plan;
  bool is_plan = false;  ///< the plan has these choices already; then all below is empty

  /// The plan with the asked choices, and with what follows from them (with_choices()). With other
  /// degrees of the model it has the fastest form of recompute that fits.
  Strategy changed;
  /// The rule that `changed` breaks, with the rule's source, or why its step is too long. Empty: it
  /// can be simulated.
  std::string rule;
  std::optional<AskedStep> as_asked;  ///< where there is no such rule; it may not fit

  /// The best plan that has the asked choices, all other choices being free.
  std::optional<AskedStep> best;
  bool best_is_proven = false;  ///< false: the time limit ended its search
  std::string none;             ///< why there is none

  /// Where `changed` is illegal or does not fit.
  LeastChanges least;
};

/// Parses "mp=4,pp=8". Throws UsageError for other text, a key given twice, or an unknown key.
Fixed parse_choices(const std::string& text);

/// Throws UsageError as with_choices() does.
WhyNot why_not(const ExplainRequest& request, const Fixed& asked);

/// Returns the least changes of a strategy that is illegal or does not fit: single changes, else
/// pairs of them. Changes of the asked choices come only where no other change helps, and none
/// leads back to the plan. Of many that are legal, those of least time by their bounds are assessed
/// until three fit.
LeastChanges least_changes_of(const ExplainRequest& request, const Strategy& changed,
                              const Fixed& asked, const PlanTime& plan);

}  // namespace plimsoll
