// Changed texts: files of other tools with one piece replaced, or damaged at random.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "tests/random_values.h"

namespace plimsoll {

/// Replaces the first of a piece in a text that has it.
inline std::string with(std::string text, const std::string& piece, const std::string& other) {
  const std::size_t at = text.find(piece);
  EXPECT_NE(at, text.npos) << piece;
  return at == text.npos ? text : text.replace(at, piece.size(), other);
}

/// Changes a text in up to four places. Bytes go or become digits, and pieces or parts of the text
/// itself come in.
inline std::string damaged(Random& random, std::string text, std::span<const char* const> pieces) {
  for (std::size_t changes = 1 + random() % 4; changes > 0; --changes) {
    const std::size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text.erase(at, 1 + random() % 30);
        break;
      case 1:
        text.insert(at, pieces[random() % pieces.size()]);
        break;
      case 2:
        text.insert(at, text.substr(random() % text.size(), random() % 60));
        break;
      default:
        text[at] = char('0' + random() % 10);
    }
    if (text.empty()) text = " ";
  }
  return text;
}

}  // namespace plimsoll
