// `planner describe`: what an input file, a log or a preset has, with figures that follow from it.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/command_line.h"
#include "base/json.h"
#include "base/text.h"
#include "plan/prediction_json.h"
#include "planner/cli/describe.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"
#include "planner/describe/describe_input.h"

namespace plimsoll {
namespace {

struct DescribeOptions {
  std::string input;
  bool json = false;
};

ExitCode run_describe(const DescribeOptions& options) {
  const Input input = read_input(options.input);
  if (input.kind != InputKind::plan) {
    const Description description = describe_input(input);
    print_result(options.json ? json_text(description_json(description))
                              : in_columns(description_text(description)));
    return ExitCode::ok;
  }
  const Plan plan = read_legal_plan(input.name);
  const Description description = describe_plan(plan);
  if (options.json) {
    Json json = description_json(description);
    json["prediction"] = prediction_json(plan.prediction);
    print_result(json_text(json));
  } else {
    print_result(in_columns(description_text(description)) + describe(plan));
  }
  return ExitCode::ok;
}

}  // namespace

void add_describe(CLI::App& app, Action& action) {
  const auto options = std::make_shared<DescribeOptions>();
  CLI::App& command = *app.add_subcommand(
      "describe",
      "what is in a job, cluster, framework, calibration, plan, strategy or training log");
  command.add_option("INPUT", options->input, "file, or name of a preset")->required();
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_describe(*options); }; });
}

}  // namespace plimsoll
