// Runs the command that the command line of `planner` names.
#include "planner/commands/dispatch.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "base/process.h"
#include "command_line/completion.h"
#include "command_line/help.h"
#include "command_line/parse.h"
#include "plan/plan.h"
#include "planner/cli/type_values.h"
#include "planner/commands/commands.h"
#include "planner/terminal/exec_beside.h"

namespace plimsoll {
namespace {

constexpr std::string_view kComplete = "complete";  // a word for scripts, not for people

/// Prints the words that may follow: `planner complete -- WORD...`, where the last may be empty.
ExitCode print_next_words(const CLI::App& app, const std::vector<std::string>& arguments) {
  const bool marked = !arguments.empty() && arguments[0] == "--";
  const std::span<const std::string> words = std::span(arguments).subspan(marked ? 1 : 0);
  for (const char* program : {"calibrate", "run"}) {
    if (words.size() < 2 || words[0] != program) continue;
    std::vector<std::string> rest = {"--complete", "--"};
    rest.insert(rest.end(), words.begin() + 1, words.end());
    exec_beside(std::string("planner-") + program, rest);
  }
  const ValuesOfType values = [&](std::string_view type, std::string_view begin) {
    if (type != "COMMAND") return values_of_type(type, begin);
    NextWords commands;
    for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; }))
      commands.words.push_back({one->get_name(), one->get_description()});
    return commands;
  };
  print_result(next_words_text(complete(app, words, values)));
  return ExitCode::ok;
}

/// Starts the executable of a command. If it is not installed, its help is what this executable
/// has.
void start(const std::string& command, const std::vector<std::string>& arguments) {
  try {
    exec_beside("planner-" + command, arguments);
  } catch (const EnvironmentError&) {
    const auto is_help = [](const std::string& word) { return word == "--help" || word == "-h"; };
    if (std::ranges::none_of(arguments, is_help)) throw;
  }
}

void add_commands(CLI::App& app, Action& action) {
  // These two are other executables, started before this command line is parsed.
  app.add_subcommand("calibrate", "measure what this machine computes and sends per second");
  add_plan(app, action);
  add_sweep(app, action);
  add_explain(app, action);
  app.add_subcommand("run", "train by a plan and measure");
  add_compare(app, action);
  add_report(app, action);
  add_simulate(app, action);
  add_space(app, action);
  add_validate(app, action);
  add_fit(app, action);
  add_learn(app, action);
  add_passes(app, action);
  add_check(app, action);
  add_export(app, action);
  add_import(app, action);
  add_describe(app, action);
  add_list(app, action);
  add_init(app, action);
  add_doctor(app, action);
  add_schema(app, action);
  add_completion(app, action);
  add_man(app, action);
  name_types(app);
}

}  // namespace

ExitCode dispatch(int argc, char** argv) {
  std::vector<char*> asked(argv, argv + argc);
  std::string help = "--help";
  if (argc > 1 && std::string_view(argv[1]) == "help") {  // help plan: plan --help
    asked.erase(asked.begin() + 1);
    asked.push_back(help.data());
    argv = asked.data();
  }
  const std::vector<std::string> arguments(argv + std::min(argc, 2), argv + argc);
  if (argc > 1 && std::string(argv[1]) == "calibrate") start("calibrate", arguments);
  if (argc > 1 && std::string(argv[1]) == "run") start("run", arguments);

  Action action;
  const std::unique_ptr<CLI::App> owner = planner_app(action);
  CLI::App& app = *owner;
  if (argc > 1 && argv[1] == kComplete) return print_next_words(app, arguments);
  if (argc < 2) {
    print_note(help_text(app));
    return ExitCode::usage;
  }
  if (!parse(app, argc, argv)) return ExitCode::ok;
  if (!action) throw UsageError("calibrate and run must be the first word");
  if (const std::optional<Bytes> memory = machine_memory()) limit_memory(*memory);
  return action();
}

std::unique_ptr<CLI::App> planner_app(Action& action) {
  auto app = std::make_unique<CLI::App>(
      "Plimsoll: how heavily a training cluster can be loaded, and how fast it will run.",
      "planner");
  app->set_version_flag("--version", fmt::format("planner {}", kProductVersion));
  app->require_subcommand(1);
  add_commands(*app, action);
  return app;
}

}  // namespace plimsoll
