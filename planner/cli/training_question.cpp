// Reads the tokens and the price of a training.
#include "planner/cli/training_question.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "planner/sweep/sweep_inputs.h"

namespace plimsoll {
namespace {

std::optional<double> price_of(const TrainingQuestion& question) {
  if (question.price.empty()) return std::nullopt;
  const Price price = parse_price(question.price);
  if (price.cluster.empty()) return price.per_hour;
  throw UsageError(fmt::format("--price {}: 2.5/h is required: there is one cluster",
                               printable(question.price)));
}

}  // namespace

std::optional<TrainingGoal> training_goal(const TrainingQuestion& question) {
  const std::optional<double> price = price_of(question);
  if (!question.tokens.empty()) return TrainingGoal{parse_tokens(question.tokens), price};
  if (price) throw UsageError("--price needs --tokens");
  return std::nullopt;
}

}  // namespace plimsoll
