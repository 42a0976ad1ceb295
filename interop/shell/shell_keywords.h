// Shell keywords tell which words of a script begin or end a block, and which stand before a
// command.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace plimsoll {

/// Returns whether what follows runs under a condition, or several times.
inline bool begins_block(std::string_view word) {
  constexpr std::array<std::string_view, 6> kWords = {"if",    "case",  "for",
                                                      "while", "until", "select"};
  return std::ranges::find(kWords, word) != kWords.end();
}

inline bool ends_block(std::string_view word) {
  return word == "fi" || word == "esac" || word == "done";
}

/// Returns whether assignments may follow.
inline bool declares(std::string_view word) {
  return word == "export" || word == "local" || word == "declare" || word == "typeset" ||
         word == "readonly";
}

/// Returns whether a command may follow on the same line.
inline bool goes_on(std::string_view word) {
  constexpr std::array<std::string_view, 9> kWords = {"then", "else", "do", "fi",  "done",
                                                      "esac", "{",    "}",  "time"};
  return declares(word) || std::ranges::find(kWords, word) != kWords.end();
}

}  // namespace plimsoll
