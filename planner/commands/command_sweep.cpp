// `planner sweep`: the best plan at each of many points, with days and cost of a training.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/command_line.h"
#include "base/file.h"
#include "command_line/interrupt.h"
#include "planner/api/sweep_question.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"
#include "planner/sweep/sweep_inputs.h"
#include "planner/sweep/sweep_output.h"
#include "planner/terminal/progress.h"

namespace plimsoll {
namespace {

struct SweepOptions {
  SweepQuestion question;
  HeldOptions held;
  std::string reserve = exact_text(kDefaultReserve);
  std::string time_limit, point_time_limit;  ///< empty: none
  std::string csv, html;                     ///< files
  bool json = false, verbose = false;
};

void write_outputs(const SweepOptions& options, const Sweep& sweep) {
  const auto write = [](const std::string& file, const std::string& text) {
    if (file.empty()) return;
    write_file_atomically(file, text);
    print_note(fmt::format("wrote {}\n", file));
  };
  if (!options.csv.empty()) write(options.csv, sweep_csv(sweep));
  if (!options.html.empty()) write(options.html, sweep_page(sweep));
  print_result(options.json      ? sweep_json(sweep)
               : options.verbose ? sweep_text(sweep)
                                 : sweep_brief(sweep));
}

/// Says what is missing, and returns the code to exit with.
ExitCode verdict_of(const Sweep& sweep, bool interrupted) {
  const std::size_t points = sweep.rows.size() + sweep.left;
  if (sweep.left > 0) {
    print_note(
        fmt::format("planner: {} after {} of {} points\n",
                    interrupted ? "stopped by an interrupt" : "the time limit ended the sweep",
                    sweep.rows.size(), points));
    return ExitCode::stopped_early;
  }
  const auto is_open = [](const SweepRow& row) {
    return row.plan ? !row.plan->proven : row.unfinished;
  };
  const auto open = std::ranges::count_if(sweep.rows, is_open);
  if (open > 0) {
    print_note(
        fmt::format("planner: at {} of {} points the best plan is not proven\n", open, points));
    return ExitCode::stopped_early;
  }
  if (answer_of(sweep).fastest) return ExitCode::ok;
  print_note("planner: no point has a plan\n");
  return ExitCode::infeasible;
}

ExitCode run_sweep_command(SweepOptions options) {
  SweepQuestion& question = options.question;
  question.constraints = parse_held(options.held);
  question.reserve = parse_reserve(options.reserve);
  question.time_limit = optional_time_limit(options.time_limit);
  if (!options.point_time_limit.empty())
    question.point_time_limit = parse_days("--point-time-limit", options.point_time_limit);
  std::vector<std::string> files = question.clusters;
  files.push_back(question.target.job);
  check_output("--csv", options.csv, files);
  files.push_back(options.csv);
  check_output("--html", options.html, files);
  InterruptNoticeOnceAsked interrupt;
  question.stop = [&] { return interrupt.asked(); };
  Progress progress("points done:");
  question.progress = [&](std::size_t done, std::size_t of) {
    progress.update(std::int64_t(done), std::int64_t(of));
  };
  const Sweep sweep = sweep_job(question);
  progress.clear();
  write_outputs(options, sweep);
  return verdict_of(sweep, interrupt.asked());
}

void add_list(CLI::App& command, const char* flag, std::vector<std::string>& values,
              const char* help) {
  command.add_option(flag, values, help)->allow_extra_args(false);
}

}  // namespace

void add_sweep(CLI::App& app, Action& action) {
  const auto options = std::make_shared<SweepOptions>();
  SweepQuestion& question = options->question;
  CLI::App& command = *app.add_subcommand(
      "sweep", "plan a job over many clusters, devices and batches: days, device-hours and cost");
  command.add_option("JOB", question.target.job, "job file, preset or Hugging Face config.json")
      ->required();
  command
      .add_option("--cluster", question.clusters,
                  "required: cluster file or preset, or 8xNAME for 8 devices of it; repeatable")
      ->allow_extra_args(false);
  add_list(command, "--devices", question.devices,
           "64,96,128, 64..1024x2 (doubled) or 64..256+64; repeatable; default: all of a cluster "
           "that states its nodes");
  add_list(command, "--framework", question.frameworks, "as of plan; repeatable");
  add_list(command, "--global-batch", question.batches, "sequences per step, as --devices");
  add_list(command, "--sequence", question.sequences, "tokens of a sequence, as --devices");
  add_list(command, "--network", question.networks,
           "Gbit/s between nodes of each device (not of a node), instead of the cluster's: "
           "100,200,400; repeatable");
  add_calibration(command, question.target.calibration);
  command.add_option("--tokens", question.tokens, "what is trained on: 15T, 300B");
  add_list(command, "--price", question.prices,
           "2.5/h for each device, or CLUSTER=2.5/h; repeatable");
  command.add_option("--deadline", question.deadline, "30d, 12h: the cheapest within this time");
  add_held(command, options->held);
  add_reserve(command, options->reserve);
  command.add_option("--time-limit", options->time_limit,
                     "end the sweep after this time (\"10 s\") with the rows so far, exit 5");
  command.add_option("--point-time-limit", options->point_time_limit,
                     "end the search of each point after this time with the best so far, exit 5");
  add_threads(command, question.threads, "the table");
  command.add_option("--csv", options->csv, "write the table here");
  command.add_option("--html", options->html, "write a page with table and charts here");
  add_verbose(command, options->verbose);
  add_json(command, options->json);
  command.callback(
      [options, &action] { action = [options] { return run_sweep_command(*options); }; });
}

}  // namespace plimsoll
