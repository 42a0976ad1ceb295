// A shell word is a word of a script, of which a part may be known to a running shell only.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

/// An UnknownPart is a part of a word that only a shell could tell. The text has its spelling
/// there.
struct UnknownPart {
  std::size_t begin = 0, end = 0;  ///< bytes of the word's text
  std::string why;

  auto operator<=>(const UnknownPart&) const = default;
};

struct ShellWord {
  std::string text;
  std::int64_t line = 0;
  std::string unknown = {};  ///< why the first unknown part is not known; empty: all is known
  std::vector<UnknownPart> parts = {};

  void add_known(std::string_view more) { text += more; }
  void add_unknown(std::string_view spelling, const std::string& why);
  void add(const ShellWord& word);  ///< at the end, with its unknown parts
  auto operator<=>(const ShellWord&) const = default;
};

using ShellWords = std::vector<ShellWord>;

/// Splits a word at blanks, except at those within an unknown part.
ShellWords split_at_blanks(const ShellWord& word);

}  // namespace plimsoll
