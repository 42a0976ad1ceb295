// Takes escape sequences out of a text.
#include "base/escapes.h"

namespace plimsoll {

std::string without_escapes(std::string_view text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\x1b' || at + 1 >= text.size() || text[at + 1] != '[') {
      plain += text[at];
      continue;
    }
    at += 2;
    while (at < text.size() && (text[at] < '@' || text[at] > '~')) ++at;
  }
  return plain;
}

}  // namespace plimsoll
