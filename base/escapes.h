// Escape sequences are what terminals read as colours and moves of the cursor.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll {

/// Returns the text without escape sequences such as "\x1b[4m" (ECMA-48, control sequences).
std::string without_escapes(std::string_view text);

}  // namespace plimsoll
