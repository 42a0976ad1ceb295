// Goals state how far off published runs a predictor may be.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "published/trace_validation.h"
#include "published/validate.h"

namespace plimsoll {

/// A Goal bounds one family's errors of step times, or of one kind of memory; or the regret over
/// all families (regret_of_all()).
struct Goal {
  bool of_regret = false;          ///< then it has no family
  std::string family;              ///< name of the family's file, without .json
  std::optional<MemoryKind> kind;  ///< absent: step times
  /// The bounds that the goal states, by their place among those that there are.
  std::vector<std::pair<std::size_t, double>> bounds;
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
