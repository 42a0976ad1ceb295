// Why not: what a choice that a user asks for costs against the plan, and what would make it run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/explain/few_changes.h"

namespace plimsoll {

/// A strategy with the asked choices, against the plan.
struct AskedStep {
  ExplainedStep step;
  StepRatio ratio;  ///< to the plan's step time
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

}  // namespace plimsoll
