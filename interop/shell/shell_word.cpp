// Joins and splits words with their unknown parts.
#include "interop/shell/shell_word.h"

namespace plimsoll {

void ShellWord::add_unknown(std::string_view spelling, const std::string& why) {
  if (unknown.empty()) unknown = why;
  parts.push_back({text.size(), text.size() + spelling.size(), why});
  text += spelling;
}

void ShellWord::add(const ShellWord& word) {
  const std::size_t shift = text.size();
  text += word.text;
  if (unknown.empty()) unknown = word.unknown;
  for (const UnknownPart& part : word.parts) {
    parts.push_back({part.begin + shift, part.end + shift, part.why});
  }
}

ShellWords split_at_blanks(const ShellWord& word) {
  ShellWords pieces;
  ShellWord piece{"", word.line};
  const auto end_piece = [&] {
    if (!piece.text.empty()) pieces.push_back(piece);
    piece = {"", word.line};
  };
  auto part = word.parts.begin();
  for (std::size_t at = 0; at < word.text.size();) {
    if (part != word.parts.end() && part->begin == at) {
      piece.add_unknown(std::string_view(word.text).substr(at, part->end - at), part->why);
      at = part->end;
      ++part;
      continue;
    }
    const char c = word.text[at++];
    if (c == ' ' || c == '\t' || c == '\n') {
      end_piece();
    } else {
      piece.add_known({&c, 1});
    }
  }
  end_piece();
  return pieces;
}

}  // namespace plimsoll
