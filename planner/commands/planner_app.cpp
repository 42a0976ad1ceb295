// Builds the command line of `planner`.
#include "planner/commands/planner_app.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "command_line/option_types.h"
#include "plan/plan.h"

namespace plimsoll {
namespace {

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
