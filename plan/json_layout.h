// Long files are laid out with indents outside and one line per row inside. A timeline of 20,000
// intervals is 20,000 lines, and a difference between two files shows up in one of them.
#pragma once

#include <string>

#include "base/json.h"

namespace plimsoll {

/// Returns text as json_text does, but keeps arrays of scalars, short objects of scalars and flat
/// elements of arrays on one line. The text ends with a newline, and the same value gives the same
/// bytes.
std::string line_text(const Json& value);

}  // namespace plimsoll
