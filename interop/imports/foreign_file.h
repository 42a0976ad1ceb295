// A foreign file is a configuration file of a trainer that is not read.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll {

/// Returns which file the text looks like, and what to give instead, by the marks of
/// models/presets/readers/foreign-files.json. The result is empty where no marks fit.
std::string foreign_file(std::string_view text);

}  // namespace plimsoll
