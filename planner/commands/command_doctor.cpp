// `planner doctor`.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/command_line.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"
#include "planner/doctor/doctor.h"

namespace plimsoll {
namespace {

ExitCode run_doctor(bool json) {
  const std::vector<Finding> findings = examine(this_machine());
  print_result(json ? findings_json(findings) : findings_text(findings));
  const bool failed = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.health == Health::fail;
  });
  return failed ? ExitCode::environment : ExitCode::ok;
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  const auto json = std::make_shared<bool>(false);
  CLI::App& command = *app.add_subcommand("doctor", "whether this machine can measure and train");
  add_json(command, *json);
  command.callback([json, &action] { action = [json] { return run_doctor(*json); }; });
}

}  // namespace plimsoll
