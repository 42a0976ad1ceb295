// Words of a line of another tool's output, with the columns at which they begin.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace plimsoll {

/// Bytes of a line; files with longer lines are refused.
constexpr std::size_t kMostLine = 65'536;

struct Word {
  std::string_view text;
  std::size_t column;  ///< from 1
};

/// Returns the words of `line` from the byte `from` on, at most `most` of them. The words refer to
/// the line.
std::vector<Word> words_of(std::string_view line, std::size_t from = 0,
                           std::size_t most = std::string_view::npos);

}  // namespace plimsoll
