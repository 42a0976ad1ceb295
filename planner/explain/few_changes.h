// Few changes: which one or two choices of a strategy to change so that it is faster, or fits.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "planner/explain/sensitivity.h"
#include "planner/refusal/least_changes.h"
#include "predict/trials.h"

namespace plimsoll {

/// Changes that shorten a step, by the number of single changes in each. An unusual choice that the
/// strategy does not have has to gain what it has to gain in a search.
struct FewChanges {
  Fastest one;  ///< single changes, at most kMostFewChanges
  Fastest two;  ///< pairs that are faster than all of `one`
};

/// The most changes in each list. Changes that gain less than kLeastGain (trials.h) are not named.
inline constexpr std::size_t kMostFewChanges = 5;

/// Finds changes of the request's strategy that are faster than its own step. Each is lowered,
/// simulated and replayed, and fits.
FewChanges few_changes(const ExplainRequest& request, const PlanTime& own);

/// Changes that make a strategy legal and let it fit. Each was lowered, simulated and replayed.
struct LeastChanges {
  std::vector<AssessedChange> found;  ///< with as few choices each as any that helps, fastest first
  std::size_t choices = 0;            ///< in each of these: 1 or 2 single changes
  /// Whether the changes leave the asked choices as they were asked. If nothing else helps, the
  /// asked choices are changed.
  bool keeps_asked = true;
  /// Whether no change was left out that has fewer choices, or that is faster with as many.
  bool proven = true;
};
/// Returns the least changes of a strategy that is illegal or does not fit: single changes, else
/// pairs of them. Changes of the asked choices come only where no other change helps, and none
/// leads back to the plan.
LeastChanges least_changes_of(const ExplainRequest& request, const Strategy& changed,
                              const Fixed& asked, const PlanTime& plan);
/// Returns changes that make the request's strategy fit on as many devices, best first: single
/// changes of each kind, else pairs, all of one kind. A note says so if there is none, or if the
/// search ended early.
FoundChanges changes_to_fit(const ExplainRequest& request, const PlanTime& own);

/// Returns how the options of the framework change from one strategy to another, such as
/// "--micro-batch-size 1 -> 2", "add --sequence-parallel" and "drop --bf16". It is empty where no
/// table has the framework's options.
std::vector<std::string> flag_changes(const Job& job, const Framework& framework,
                                      const Strategy& from, const Strategy& to);

/// Says what limits the step, then the best changes, in at most fifteen lines with the headline.
std::string few_changes_brief(const Target& target, const ExplainedStep& step,
                              const FewChanges& found);
/// Says what limits the step, then which changes would shorten it most, each with its options.
std::string few_changes_text(const Target& target, const ExplainedStep& step,
                             const FewChanges& found);
Json few_changes_json(const Target& target, const ExplainedStep& step, const FewChanges& found);

}  // namespace plimsoll
