// Lists the variables that the shell's own commands set.
#include "interop/shell/shell_builtins.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "interop/shell/word_reader.h"

namespace plimsoll {

bool is_variable_name(const std::string& text) {
  return !text.empty() && !(text[0] >= '0' && text[0] <= '9') && std::ranges::all_of(text, is_name);
}

std::size_t program_at(const ShellWords& command) {
  constexpr std::array<std::string_view, 7> kBefore = {"if", "elif",    "while",  "until",
                                                       "!",  "builtin", "command"};
  const auto stands_before = [&](const std::string& word) {
    const std::size_t equals = word.find('=');
    return std::ranges::find(kBefore, word) != kBefore.end() ||
           (equals != word.npos && is_variable_name(word.substr(0, equals)));
  };
  std::size_t at = 0;
  while (at < command.size() && stands_before(command[at].text)) ++at;
  return at;
}

std::vector<std::string> set_by_builtin(const std::string& program, const ShellWords& arguments) {
  std::vector<std::string> names;
  const auto add = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < std::min(to, arguments.size()); ++i) {
      if (is_variable_name(arguments[i].text)) names.push_back(arguments[i].text);
    }
  };
  if (program == "read" || program == "mapfile" || program == "readarray") {
    add(0, arguments.size());
    if (names.empty()) names.push_back(program == "read" ? "REPLY" : "MAPFILE");
  } else if (program == "getopts") {
    add(1, 2);
  } else if (program == "printf" && !arguments.empty() && arguments[0].text == "-v") {
    add(1, 2);
  }
  return names;
}

}  // namespace plimsoll
