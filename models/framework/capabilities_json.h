// The capabilities of a framework, in plan files and framework files.
#pragma once

#include "base/json.h"
#include "models/framework/capabilities.h"

namespace plimsoll {

/// An object with a key for each capability: {"value", "source"}; values are true or false, a
/// number, or the list of what there is.
Json capabilities_json(const Capabilities& capabilities);
/// Throws InputError for a missing or unknown key and a bad value.
Capabilities capabilities_from(JsonObject object);
/// Replaces those that the object states.
void read_stated(JsonObject object, Capabilities& capabilities);

}  // namespace plimsoll
