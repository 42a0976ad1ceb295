// Columns: breaks lines that are wider than a terminal.
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

}  // namespace plimsoll
