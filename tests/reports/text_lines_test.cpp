// Lines of a terminal are at most a hundred columns wide, and lose nothing.
#include "reports/text_lines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

namespace plimsoll {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(TextLines, StandBehindTheirLabels) {
  EXPECT_EQ(labelled_line("step", "24.3 s"), "step     24.3 s\n");
  EXPECT_EQ(labelled_line("", "24.3 s", 0), "24.3 s\n");
  EXPECT_EQ(labelled_line("step", ""), "");
}

TEST(TextLines, BreakBehindPhrasesAndKeepEveryWord) {
  std::string text, words;
  for (int i = 0; i < 60; ++i) text += (i == 0 ? "" : i % 5 == 0 ? ", " : " ") + std::to_string(i);
  const auto lines = lines_of(labelled_line("layout", text));
  ASSERT_EQ(lines.size(), count_lines(labelled_line("layout", text)));
  ASSERT_GT(lines.size(), 1u);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_LE(lines[i].size(), kTerminalColumns) << lines[i];
    EXPECT_EQ(lines[i].substr(0, 9), i == 0 ? "layout   " : "         ");
    if (i + 1 < lines.size()) {
      EXPECT_EQ(lines[i].back(), ',') << lines[i];
    }
    words += (i == 0 ? "" : " ") + lines[i].substr(9);
  }
  EXPECT_EQ(words, text);
}

TEST(TextLines, LeaveAWordThatIsTooWideWhole) {
  const std::string word(150, 'x');
  EXPECT_EQ(labelled_line("a", word + " b"), "a        " + word + "\n         b\n");
}

TEST(TextLines, CommandsGoOnAsShellsTakeThem) {
  EXPECT_EQ(command_line("next", "planner plan job"), "next     planner plan job\n");
  std::string command = "planner plan job";
  for (int i = 0; i < 20; ++i) command += " --fix key=" + std::to_string(i);
  std::string joined;
  const auto lines = lines_of(command_line("next", command));
  for (const std::string& line : lines) {
    EXPECT_LE(line.size(), kTerminalColumns) << line;
    const bool last = &line == &lines.back();
    EXPECT_EQ(line.ends_with(" \\"), !last) << line;
    joined += line.substr(9, line.size() - 9 - (last ? 0 : 1));
  }
  EXPECT_EQ(joined, command);
}

}  // namespace
}  // namespace plimsoll
