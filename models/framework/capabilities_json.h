// The capabilities of a framework are read from plan files and framework files, and written to
// them.
#pragma once

#include "base/json.h"
#include "models/framework/capabilities.h"

namespace plimsoll {

/// Returns an object with {"value", "source"} for each capability. A value is true or false, a
/// number, or a list of the choices that the framework has.
Json capabilities_json(const Capabilities& capabilities);
/// Reads such an object. Throws InputError for a missing or unknown key and a bad value.
Capabilities capabilities_from(JsonObject object);
/// Replaces the capabilities that the object states.
void read_stated(JsonObject object, Capabilities& capabilities);

}  // namespace plimsoll
