// Breaks texts into lines of a terminal.
#include "reports/text_lines.h"

#include <fmt/format.h>

#include <algorithm>

namespace plimsoll {
namespace {

/// Returns where a text that is too wide is broken: the length of its first line. A break between
/// two phrases is taken if it fills half of the line.
std::size_t first_line_of(std::string_view text, std::size_t width) {
  if (text.size() <= width) return text.size();
  std::size_t phrase = 0, word = 0;
  for (std::size_t i = 1; i <= width; ++i) {
    if (text[i] != ' ') continue;
    word = i;
    const char before = text[i - 1];
    if (before == ',' || before == ';' || before == ':' || before == '.') phrase = i;
  }
  if (phrase >= width / 2) return phrase;
  if (word > 0) return word;
  return std::min(text.find(' ', width), text.size());  // a word wider than the line stays whole
}

constexpr std::size_t kBetweenColumns = 2;

std::size_t width_of(const TextColumn& column) {
  std::size_t width = column.title.size();
  for (const std::string& cell : column.cells) width = std::max(width, cell.size());
  return width;
}

}  // namespace

std::string labelled_line(std::string_view label, std::string_view text, std::size_t label_width) {
  std::string lines;
  while (!text.empty()) {
    const std::size_t end = first_line_of(text, kTerminalColumns - label_width);
    lines += fmt::format("{:<{}}{}\n", label, label_width, text.substr(0, end));
    label = "";
    text.remove_prefix(std::min(text.find_first_not_of(' ', end), text.size()));
  }
  return lines;
}

std::string command_line(std::string_view label, std::string_view command,
                         std::size_t label_width) {
  constexpr std::string_view kContinued = " \\";
  const std::size_t width = kTerminalColumns - label_width - kContinued.size();
  std::string lines;
  while (command.size() > width + kContinued.size()) {
    // Before a flag, never within a quoted word or a comment.
    const std::size_t comment = command.find("  # ");
    std::size_t end = command.rfind(" -", std::min(width, comment));
    if (end == command.npos || end == 0) end = command.find(" -", width);
    if (end == command.npos || end > comment) break;
    lines += fmt::format("{:<{}}{}{}\n", label, label_width, command.substr(0, end), kContinued);
    label = "";
    command.remove_prefix(end + 1);
  }
  return lines + fmt::format("{:<{}}{}\n", label, label_width, command);
}

std::size_t width_of(const std::vector<TextColumn>& columns) {
  std::size_t sum = 0;
  for (const TextColumn& column : columns)
    sum += width_of(column) + (sum == 0 ? 0 : kBetweenColumns);
  return sum;
}

std::string table_text(const std::vector<TextColumn>& columns) {
  std::string text;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const std::size_t width = i + 1 == columns.size() ? 0 : width_of(columns[i]);
      line += std::string(i == 0 ? 0 : kBetweenColumns, ' ');
      line += columns[i].is_text ? fmt::format("{:<{}}", cell_of(columns[i]), width)
                                 : fmt::format("{:>{}}", cell_of(columns[i]), width);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line([](const TextColumn& column) { return column.title; });
  for (std::size_t row = 0; row < columns.at(0).cells.size(); ++row)
    add_line([&](const TextColumn& column) { return column.cells[row]; });
  return text;
}

std::size_t count_lines(std::string_view text) {
  return std::size_t(std::ranges::count(text, '\n'));
}

}  // namespace plimsoll
