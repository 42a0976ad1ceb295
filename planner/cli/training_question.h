// Training question: the tokens and the price that options give for a training.
#pragma once

#include <optional>
#include <string>

#include "plan/training/training.h"

namespace plimsoll {

struct TrainingQuestion {
  std::string tokens;  ///< as parse_tokens() takes it; empty: no training is asked for
  std::string price;   ///< as parse_price() takes it, without a cluster; empty: unknown
};

/// Returns the goal, or nothing without tokens. Throws UsageError.
std::optional<TrainingGoal> training_goal(const TrainingQuestion& question);

}  // namespace plimsoll
