// Presets that the program itself reads.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"
#include "models/presets/presets.h"

namespace plimsoll {

/// Returns the JSON of a preset that is known to be there.
Json known_json(const std::vector<Preset>& presets, std::string_view name);

}  // namespace plimsoll
