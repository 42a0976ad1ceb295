// The `planner` executable: its command line.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "plan/plan.h"
#include "planner/commands/commands.h"
#include "planner/terminal/exec_beside.h"

namespace plimsoll {
namespace {

std::vector<CLI::App*> commands_of(CLI::App& app) {
  return app.get_subcommands([](CLI::App*) { return true; });
}

void add_commands(CLI::App& app, Action& action) {
  // These two are other executables, started before this command line is parsed.
  app.add_subcommand("calibrate", "measure this machine (planner-calibrate --help)");
  add_plan(app, action);
  add_explain(app, action);
  app.add_subcommand("run", "train by a plan and measure (planner-run --help)");
  add_compare(app, action);
  add_report(app, action);
  add_simulate(app, action);
  add_space(app, action);
  add_validate(app, action);
  add_fit(app, action);
  add_passes(app, action);
  add_check(app, action);
  add_export(app, action);
  add_import(app, action);
  add_describe(app, action);
  add_init(app, action);
  add_doctor(app, action);
  // Flags that they do not know are refused by refuse_unknown, which can name the nearest.
  app.allow_extras();
  for (CLI::App* command : commands_of(app)) {
    command->allow_extras();
    for (CLI::App* one : commands_of(*command)) one->allow_extras();
  }
}

/// Throws UsageError for the first word that nobody knows, or an empty value.
void refuse_unknown(CLI::App& app) {
  std::vector<std::string> commands;
  for (const CLI::App* command : commands_of(app)) commands.push_back(command->get_name());
  refuse_leftovers(app, commands);
  for (CLI::App* command : app.get_subcommands()) refuse_unknown(*command);
}

/// Parses and runs; CLI11's own errors become UsageError.
ExitCode dispatch(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + std::min(argc, 2), argv + argc);
  if (argc > 1 && std::string(argv[1]) == "calibrate") exec_beside("planner-calibrate", arguments);
  if (argc > 1 && std::string(argv[1]) == "run") exec_beside("planner-run", arguments);

  CLI::App app("Plimsoll: how heavily a training cluster can be loaded, and how fast it will run.",
               "planner");
  app.set_version_flag("--version", fmt::format("planner {}", kProductVersion));
  app.require_subcommand(1);
  Action action;
  add_commands(app, action);
  if (argc < 2) {
    std::fputs(app.help().c_str(), stderr);
    return ExitCode::usage;
  }
  refuse_empty_values(argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    std::ostringstream text;
    app.exit(success, text, text);
    print_result(text.str());
    return ExitCode::ok;
  } catch (const CLI::ParseError& error) {
    refuse_unknown(app);  // a misspelt flag is the likelier cause of a missing one
    throw UsageError(error.what());
  }
  refuse_unknown(app);
  if (!action) throw UsageError("calibrate and run must be the first word");
  return action();
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  return plimsoll::run_program("planner", [&] { return plimsoll::dispatch(argc, argv); });
}
