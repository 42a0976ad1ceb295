// Goals state how far off published runs a predictor may be.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "published/trace_validation.h"
#include "published/validate.h"

namespace plimsoll {

/// A RegretGoal bounds what recommended layouts lose, by source (regret_by_source()).
struct RegretGoal {
  std::optional<double> most_mean_pct;           ///< mean over sources
  std::optional<double> most_worst_pct;          ///< of any group
  std::optional<double> most_best_of_three_pct;  ///< mean over sources
};

/// A Goal bounds one family's errors of step times, or of one kind of memory; or the regret over
/// all families. Absent bounds ask for nothing.
struct Goal {
  std::optional<RegretGoal> regret;  ///< if present, the other fields are not
  std::string family;                ///< name of the family's file, without .json
  std::optional<MemoryKind> kind;    ///< absent: step times
  std::optional<double> most_mean_abs_pct, most_median_abs_pct, least_spearman;
  std::optional<double> least_interval90_coverage;  ///< share
  /// The mean half width of the intervals relative to the mean absolute error.
  std::optional<double> most_interval90_to_error;
  std::optional<double> most_skipped_pct;  ///< share of the rows that lack nothing but fp8 or cp
  /// The most rows that ran out of memory though they were predicted to fit or not predicted; and
  /// the most rows that ran though they were predicted not to fit.
  std::optional<std::int64_t> most_missed_oom, most_false_oom;
};

/// Parses a goals file: {"goals": [{"family": ..., "of": "time", "most_mean_abs_pct": 4, ...}]}
/// or {"goals": [{"of": "regret", "most_mean_pct": 2.5, ...}]} (docs/reference/published-runs.md).
/// Throws InputError.
std::vector<Goal> parse_goals(std::string_view text, const std::string& file);

struct GoalResult {
  std::string what;  ///< "torchtitan time mean |error|"
  double found = 0, bound = 0;
  bool met = false;
};
/// Returns one result for each bound of each goal, in their order. A bound on something that was
/// not measured is not met. Throws InputError (of `file`) where the family of a goal is not among
/// `families`.
std::vector<GoalResult> check_goals(std::span<const Goal> goals,
                                    std::span<const ValidatedFamily> families,
                                    const std::string& file);
/// Returns families and rows, and `goals` and `allocator_traces` where there are any.
std::string validation_json(std::span<const ValidatedFamily> families,
                            std::span<const GoalResult> goals,
                            std::span<const ValidatedTraces> traces = {});
std::string goals_text(std::span<const GoalResult> results);

}  // namespace plimsoll
