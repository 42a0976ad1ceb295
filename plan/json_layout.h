// Layout of the long files: indented outside, one line per row inside, so that a timeline of 20,000
// intervals is 20,000 lines and a difference between two files points at one of them.
#pragma once

#include <string>

#include "base/json.h"

namespace plimsoll {

/// Like json_text, but arrays of scalars, short objects of scalars and flat elements of arrays stay
/// on one line. Ends with a newline; the same value gives the same bytes.
std::string line_text(const Json& value);

}  // namespace plimsoll
