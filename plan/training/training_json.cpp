// Reads and writes the training of a plan.
#include "plan/training/training_json.h"

#include <fmt/format.h>

namespace plimsoll {
namespace {

constexpr double kMostTokens = 1e18, kHighestPrice = 1e9;

}  // namespace

void add_amount(Json& json, const std::string& key, const Amount* amount) {
  json[key] = amount ? Json(amount->value) : Json(nullptr);
  json[key + "_low"] = amount ? Json(amount->low) : Json(nullptr);
  json[key + "_high"] = amount ? Json(amount->high) : Json(nullptr);
}

Json training_json(const Training& training) {
  Json json = {{"tokens", training.tokens},
               {"price_per_device_hour", training.price ? Json(*training.price) : Json(nullptr)},
               {"steps", training.steps}};
  add_amount(json, "days", &training.days);
  add_amount(json, "device_hours", &training.device_hours);
  add_amount(json, "cost", training.cost ? &*training.cost : nullptr);
  return json;
}

Training training_from(JsonObject object, const TrainingStep& step) {
  const double tokens = object.number("tokens", 1, kMostTokens);
  std::optional<double> price;
  if (object.has("price_per_device_hour"))
    price = object.number("price_per_device_hour", 0, kHighestPrice);
  Training training = training_of(step, {tokens, price});
  const Json required = training_json(training);
  for (const auto& [key, value] : required.items()) {
    if (object.raw(key) != value) object.fail(key, fmt::format("{} is required", value.dump()));
  }
  object.finish();
  return training;
}

}  // namespace plimsoll
