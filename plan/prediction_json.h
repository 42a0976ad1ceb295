// The prediction of a plan and its unusual choices are read from JSON and written to it.
#pragma once

#include "base/json.h"
#include "plan/plan.h"

namespace plimsoll {

/// Returns a strategy as files have it.
Json strategy_json(const Strategy& strategy);

Json prediction_json(const Prediction& prediction);
Prediction prediction_from(JsonObject object);

class Fields;
/// Lists the key of an unusual choice and the gain that it requires.
void list_fields(Fields& io, Unusual& unusual);
/// Returns a list of unusual choices.
Json unusual_json(std::span<const Unusual> choices);

}  // namespace plimsoll
