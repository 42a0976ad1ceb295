// The files of the checker share these types: the context that a rule reads, and the rows of its
// tables.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/program.h"
#include "plan/check.h"

namespace plimsoll {

/// A CheckContext is a plan with what follows from its job, strategy and framework alone.
struct CheckContext {
  const Plan& plan;
  /// The Programs as the passes rebuild them, by class. It is empty where the strategy is not
  /// legal. A rule of its own reports that, and rules that need Programs then report nothing.
  std::vector<Program> programs;
  std::vector<MemoryPeak> memory;  ///< parallel to programs
};

/// A Finding is a message with what was found and what is right. It is absent when the rule holds.
/// A rule gives one message, about the first offender in the order of the file.
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

/// Returns whether two numbers are equal up to the rounding of a few double operations.
bool nearly_equal(double a, double b);

}  // namespace plimsoll
