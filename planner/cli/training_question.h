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

/// Returns the training of these tokens in such steps, or nothing without tokens. Throws
/// UsageError.
std::optional<Training> training_asked(const TrainingQuestion& question, const TrainingStep& step);
/// Throws UsageError as training_asked() does, before a step is known.
void check_training(const TrainingQuestion& question);

}  // namespace plimsoll
