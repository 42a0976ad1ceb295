// Few changes: which one or two choices of a running job to change first.
#pragma once

#include <string>
#include <vector>

#include "planner/explain/sensitivity.h"

namespace plimsoll {

/// Changes that shorten a step, by the number of single changes in each. An unusual choice that the
/// strategy does not have has to gain what it has to gain in a search.
struct FewChanges {
  /// Single changes, by merit(), at most kMostFewChanges. Of changes of the same choices to
  /// other values, the fastest is named.
  std::vector<AssessedChange> one;
  std::vector<AssessedChange> two;  ///< pairs that are faster than all of `one`, best first
  /// Whether bounds prove that no other single change, or pair, is faster than the first that is
  /// named. It is false where the search for them ended after kMostAssessedChanges, or where the
  /// request was asked to stop.
  bool one_is_best = true, two_is_best = true;
};

/// A change that shortens a step by less than this share of it is not named.
inline constexpr double kLeastGain = 0.001;
inline constexpr std::size_t kMostFewChanges = 5, kMostAssessedChanges = 96;

/// Finds changes of the request's strategy that are faster than its own step. Each is lowered,
/// simulated and replayed, and fits.
FewChanges few_changes(const ExplainRequest& request, const PlanTime& own);

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
std::string few_changes_json(const Target& target, const ExplainedStep& step,
                             const FewChanges& found);

}  // namespace plimsoll
