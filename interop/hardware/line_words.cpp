// Words of lines, separated by blanks.
#include "interop/hardware/line_words.h"

#include <algorithm>

namespace plimsoll {

std::vector<Word> words_of(std::string_view line, std::size_t from, std::size_t most) {
  std::vector<Word> words;
  for (std::size_t at = from; at < line.size() && words.size() < most;) {
    at = line.find_first_not_of(" \t\r", at);
    if (at == line.npos) break;
    const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    words.push_back({line.substr(at, end - at), at + 1});
    at = end;
  }
  return words;
}

}  // namespace plimsoll
