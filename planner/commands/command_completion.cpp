// `planner completion`: the script with which a shell completes planner.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "models/presets/presets.h"
#include "planner/commands/commands.h"

namespace plimsoll {

void add_completion(CLI::App& app, Action& action) {
  const auto shell = std::make_shared<std::string>();
  CLI::App& command = *app.add_subcommand("completion", "a script that completes words in a shell");
  command.add_option("SHELL", *shell, "which shell")
      ->required()
      ->check(CLI::IsMember(std::vector<std::string>{"bash", "zsh", "fish"}));
  command.callback([shell, &action] {
    action = [shell] {
      print_result(std::string(*find_preset(completion_presets(), *shell)));
      return ExitCode::ok;
    };
  });
}

}  // namespace plimsoll
