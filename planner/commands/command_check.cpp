// `planner check`: a plan file by rules, without timing anything.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/command_line.h"
#include "plan/check.h"
#include "planner/api/summary_json.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"
#include "predict/stage_memory.h"

namespace plimsoll {
namespace {

struct CheckOptions {
  std::string plan;
  bool json = false;
};

ExitCode run_check(const CheckOptions& options) {
  const Plan plan = read_plan(options.plan);
  std::vector<Violation> violations = check(plan);
  std::vector<Rule> all = rules();
  all.push_back(kAllocatorPeaks);
  // Programs are rebuilt from a plan that keeps the rules only.
  if (violations.empty()) violations = check_allocators(plan);
  if (options.json) {
    print_result(check_json(all, violations));
  } else if (violations.empty()) {
    print_result(fmt::format("{}: all {} rules hold\n", options.plan, all.size()));
  } else {
    std::string text;
    for (const Violation& one : violations) text += fmt::format("{}: {}\n", one.rule, one.message);
    print_result(text);
  }
  if (violations.empty()) return ExitCode::ok;
  print_note(fmt::format("planner: {}: {} violation{}\n", options.plan, violations.size(),
                         violations.size() == 1 ? "" : "s"));
  return ExitCode::bad_input;
}

}  // namespace

void add_check(CLI::App& app, Action& action) {
  const auto options = std::make_shared<CheckOptions>();
  CLI::App& command =
      *app.add_subcommand("check", "check a plan file by rules, without timing anything");
  command.add_option("PLAN", options->plan, "plan file")->required();
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_check(*options); }; });
}

}  // namespace plimsoll
