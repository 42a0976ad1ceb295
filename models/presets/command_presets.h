// Presets that describe the programs themselves: help of commands and schemas of files.
#pragma once

#include "models/presets/presets.h"

namespace plimsoll {

/// Returns models/presets/commands: sentence and examples of each command's help, by its full name
/// (command_line/help.h).
const std::vector<Preset>& command_presets();

/// Returns models/presets/schemas: a JSON Schema of each kind of file.
const std::vector<Preset>& schema_presets();

}  // namespace plimsoll
