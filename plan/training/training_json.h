// Reads and writes the training of a plan, as files and --json have it.
#pragma once

#include <string>

#include "base/json.h"
#include "plan/training/training.h"

namespace plimsoll {

/// Adds KEY, KEY_low and KEY_high to an object; null without an amount.
void add_amount(Json& json, const std::string& key, const Amount* amount);

/// Returns the training as plan files have it (docs/reference/plan.md).
Json training_json(const Training& training);
/// Reads the tokens and the price. Throws InputError where another number is not what follows from
/// them in such steps.
Training training_from(JsonObject object, const TrainingStep& step);

}  // namespace plimsoll
