// Text: lines of a terminal are broken, escape sequences taken out, and long texts cut.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace plimsoll {

inline constexpr std::size_t kTerminalColumns = 100;

/// Breaks lines of more than kTerminalColumns between words. What goes on stands below the column
/// that a line's text begins in: behind its first gaps of two spaces, else two to the right of its
/// indentation. A word that is wider stays whole.
std::string in_columns(std::string_view text);

/// Returns the text without escape sequences such as "\x1b[4m" (ECMA-48, control sequences).
std::string without_escapes(std::string_view text);

/// Returns the text, or its beginning of at most `most` bytes where it is longer. No character of
/// UTF-8 is cut in two.
std::string shortened(std::string text, std::size_t most);

}  // namespace plimsoll
