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

std::optional<Training> training_asked(const TrainingQuestion& question, const TrainingStep& step) {
  check_training(question);
  if (question.tokens.empty()) return std::nullopt;
  return training_of(step, parse_tokens(question.tokens), price_of(question));
}

void check_training(const TrainingQuestion& question) {
  price_of(question);
  if (!question.tokens.empty()) parse_tokens(question.tokens);
  if (question.tokens.empty() && !question.price.empty())
    throw UsageError("--price needs --tokens");
}

}  // namespace plimsoll
