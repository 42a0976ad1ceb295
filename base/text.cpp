// Breaks lines between words, and shortens and escapes texts.
#include "base/text.h"

#include <algorithm>

namespace plimsoll {
namespace {

/// Text that begins further to the right is not what a line is for.
constexpr std::size_t kMostIndent = 40;
/// A line that begins here or further to the right goes on another.
constexpr std::size_t kLeastText = 8;

/// Returns the column below which a line goes on.
std::size_t hanging_indent(std::string_view line) {
  const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
  std::size_t indent = begin + (begin < kLeastText ? 2 : 0);
  for (std::size_t gap = line.find("  ", begin); gap < kMostIndent; gap = line.find("  ", indent)) {
    const std::size_t next = line.find_first_not_of(' ', gap);
    if (next == line.npos || next > kMostIndent) break;
    indent = next;
  }
  return std::min(indent, kMostIndent);
}

std::string line_in_columns(std::string_view line) {
  const std::string indent(hanging_indent(line), ' ');
  std::string text;
  while (line.size() > kTerminalColumns - (text.empty() ? 0 : indent.size())) {
    const std::size_t width = kTerminalColumns - (text.empty() ? 0 : indent.size());
    const std::size_t least = text.empty() ? indent.size() : 0;  // not before the text begins
    std::size_t end = line.rfind(' ', width);
    if (end == line.npos || end <= least) end = line.find(' ', width);
    if (end == line.npos) break;
    text += (text.empty() ? "" : indent) + std::string(line.substr(0, end)) + "\n";
    line.remove_prefix(std::min(line.find_first_not_of(' ', end), line.size()));
  }
  return text + (text.empty() ? "" : indent) + std::string(line);
}

}  // namespace

std::string in_columns(std::string_view text) {
  std::string lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines += line_in_columns(text.substr(0, end));
    if (end == text.npos) break;
    lines += '\n';
    text.remove_prefix(end + 1);
  }
  return lines;
}

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

std::string shortened(std::string text, std::size_t most) {
  if (text.size() <= most) return text;
  const auto continues = [&] { return (static_cast<unsigned char>(text[most]) & 0xc0u) == 0x80u; };
  while (most > 0 && continues()) --most;
  text.resize(most);
  return text;
}

}  // namespace plimsoll
