// Types that the files of the checker share: the context a rule reads and the rows of its tables.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/program.h"
#include "plan/check.h"

namespace plimsoll {

/// A plan and what follows from its job, strategy and framework alone.
struct CheckContext {
  const Plan& plan;
  /// Rebuilt by the passes, by stage; empty when the strategy is not legal, which has a rule of its
  /// own: rules that need Programs then have nothing to say.
  std::vector<Program> programs;
  std::vector<MemoryPeak> memory;  ///< parallel to programs
};

/// A message with what was found and what is right; absent when the rule holds. One message per
/// rule: the first offender in the order of the file.
using Finding = std::optional<std::string>;

struct CheckRule {
  Rule rule;
  Finding (*check)(const CheckContext& context);
};

std::span<const CheckRule> strategy_rules();    ///< the plan is about a legal strategy
std::span<const CheckRule> program_rules();     ///< its Programs and their memory
std::span<const CheckRule> prediction_rules();  ///< step time and the numbers made from it
std::span<const CheckRule> timeline_rules();    ///< the predicted timeline
std::span<const CheckRule> search_rules();      ///< the search and the plans that lost

/// Equal up to the rounding of a few double operations.
bool nearly_equal(double a, double b);

}  // namespace plimsoll
