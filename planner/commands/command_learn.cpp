// `planner learn`: the numbers of a cluster and of a framework, moved towards what one's own runs
// took.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/command_line.h"
#include "planner/api/learn_question.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"

namespace plimsoll {
namespace {

struct LearnOptions {
  LearnQuestion question;
  std::string output;  ///< file; empty: none is written
  bool json = false;
};

ExitCode run_learn(const LearnOptions& options) {
  const LearnAnswer answer = learn_runs(options.question, options.output);
  if (!options.output.empty()) print_note(fmt::format("wrote {}\n", options.output));
  print_result(options.json ? learned_json(answer, options.output) : learned_text(answer));
  return ExitCode::ok;
}

}  // namespace

void add_learn(CLI::App& app, Action& action) {
  const auto options = std::make_shared<LearnOptions>();
  CLI::App& command =
      *app.add_subcommand("learn", "learn a cluster's numbers from scripts of runs and their logs");
  command
      .add_option("--from", options->question.scripts,
                  "launch script or settings of a run; once for each run, in the order of --log")
      ->allow_extra_args(false)
      ->required();
  command.add_option("--log", options->question.logs, "what the trainer of that run printed")
      ->allow_extra_args(false)
      ->required();
  command
      .add_option("--trace", options->question.traces,
                  "trace by the profiler of that run; the first runs may have one")
      ->allow_extra_args(false);
  add_job(command, options->question.target, false);
  add_machine(command, options->question.target);
  command.add_option("-o,--output", options->output, "write the calibration here");
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_learn(*options); }; });
}

}  // namespace plimsoll
