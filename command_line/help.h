// Help: what `--help` of a command begins with, which is one sentence and examples by task, and its
// manual page (section 1). The texts are files of models/presets/commands.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace plimsoll {

struct CommandExample {
  std::string task;     ///< "Plan for 64 GPUs"
  std::string command;  ///< a line of a shell
};

struct CommandHelp {
  std::string about;  ///< one sentence
  std::vector<CommandExample> examples;
  std::vector<std::pair<std::string, std::string>> exit_status;  ///< code and meaning; may be empty
};

/// Returns the name of the command's manual page and of its help: "planner-import-topology".
std::string full_name(const CLI::App& command);

/// Returns the help of a command by its full name, or nothing where there is none.
std::optional<CommandHelp> find_help(std::string_view full_name);

/// Returns the text of `--help` of the command that was parsed last, which is below `root`.
/// Sentence and examples come first, then what CLI11 says of the command.
std::string help_text(CLI::App& root);

/// Names the types of all text options of a program and its commands by their flag, which means
/// alike everywhere: CLUSTER for --cluster. Options that have a type of their own keep it.
void name_types(CLI::App& program);

/// Returns the page of a command in the man macros of troff. `source` is the program with its
/// version: "planner 1.0".
std::string manual_page(const CLI::App& command, const std::string& source);

}  // namespace plimsoll
