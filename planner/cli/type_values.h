// Type values: the values that options of each type may have, for completion.
#pragma once

#include <string_view>

#include "command_line/completion.h"

namespace plimsoll {

/// Returns presets, keys of strategies with their usual values, and other words by the type of an
/// option or the name of an argument: "JOB", "KEY=VALUE". Names of files stand next to them where
/// the type may be a file, as an unknown one may.
NextWords values_of_type(std::string_view type, std::string_view begin);

}  // namespace plimsoll
