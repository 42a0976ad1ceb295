// The prediction of a plan and its unusual choices are read from JSON and written to it.
#pragma once

#include "base/field_list.h"
#include "base/json.h"
#include "plan/plan.h"

namespace plimsoll {

/// Returns a strategy as files have it.
Json strategy_json(const Strategy& strategy);

Json prediction_json(const Prediction& prediction);
Prediction prediction_from(JsonObject object);

/// Returns the keys of all unusual choices, in order.
std::span<const std::string_view> unusual_keys();
/// Lists the key of an unusual choice and the gain that it requires. A plan that is as likely to
/// fit as not has odds of 1.
inline constexpr auto kUnusual = [](auto& fields, auto& unusual) {
  fields.required("choice", unusual.choice, unusual_keys());
  fields.required("gain", unusual.gain, {0, 1});
};
/// Returns a list of unusual choices.
Json unusual_json(std::span<const Unusual> choices);

}  // namespace plimsoll
