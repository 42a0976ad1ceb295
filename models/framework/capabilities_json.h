// The capabilities of a framework are read from plan files and framework files, and written to
// them.
#pragma once

#include "base/json.h"
#include "models/framework/capabilities.h"

namespace plimsoll {

/// Returns an object with {"value", "source"} for each capability. A value is true or false, a
/// number, or a list of the choices that the framework has.
Json capabilities_json(const Capabilities& capabilities);
/// Which capabilities an object has: all of them, or some.
enum class Stated : std::uint8_t { all, some };
/// Reads such an object, and leaves the capabilities as they are that it does not state. Throws
/// InputError for an unknown key and a bad value, and for a missing key among all.
void read_capabilities(JsonObject object, Stated stated, Capabilities& capabilities);

}  // namespace plimsoll
