// `planner report`: a plan as one HTML page.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <memory>
#include <optional>

#include "base/command_line.h"
#include "base/file.h"
#include "interop/exports/flags_script.h"
#include "plan/measured.h"
#include "planner/api/questions.h"
#include "planner/api/summary_json.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"
#include "planner/terminal/progress.h"
#include "reports/compare.h"
#include "reports/sections/html.h"

namespace plimsoll {
namespace {

struct ReportOptions {
  PlanFiles files;
  std::string measured, output;
  std::string time_limit;  ///< empty: none
  std::int64_t threads = 0;
  double tolerance = 0.30;
  bool plan_only = false;
  bool json = false;
};

Explained explain_for(const Plan& plan, const ReportOptions& options,
                      std::optional<Seconds> time_limit) {
  if (options.plan_only) return {std::nullopt, "the page was made of the plan file alone"};
  Progress progress("steps done:");
  return explain_for_report(plan, {options.files, time_limit, options.threads},
                            [&](std::int64_t done, std::int64_t of) { progress.update(done, of); },
                            {});
}

ExitCode run_report(const ReportOptions& options) {
  const std::optional<Seconds> time_limit = optional_time_limit(options.time_limit);
  check_output("-o", options.output, std::array{options.files.plan, options.measured});
  const Plan plan = read_legal_plan(options.files.plan);
  std::optional<Measured> measured;
  std::optional<std::string> verdict;
  if (!options.measured.empty()) {
    measured = read_measured(options.measured);
    verdict =
        compare(plan, *measured, options.tolerance, {options.files.plan, options.measured}).verdict;
  }
  const Explained explained = explain_for(plan, options, time_limit);
  if (!explained.why_not.empty() && !options.plan_only)
    print_note(fmt::format("planner: the page shows the plan alone: {}\n", explained.why_not));
  const ReportFlags flags = report_flags(plan).value_or(ReportFlags{});
  write_file_atomically(options.output,
                        report_html({plan, measured, options.tolerance,
                                     explained.explanation ? &*explained.explanation : nullptr,
                                     explained.why_not, flags.target, flags.text, flags.lost}));
  print_note(fmt::format("wrote {}\n", options.output));
  if (options.json) print_result(report_json(options.output, verdict));
  return ExitCode::ok;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  const auto options = std::make_shared<ReportOptions>();
  CLI::App& command = *app.add_subcommand("report", "one self-contained HTML page");
  command.add_option("PLAN", options->files.plan, "plan file")->required();
  command.add_option("MEASURED", options->measured, "what planner run wrote");
  command.add_option("-o,--output", options->output, "write the page here")->required();
  command.add_option("--cluster", options->files.cluster,
                     "the plan's cluster file, if it is not built in");
  command
      .add_option("--calibration", options->files.calibration,
                  "the plan's calibration, given as to plan, if it is not built in")
      ->allow_extra_args(false);
  command.add_flag("--plan-only", options->plan_only,
                   "show what the plan file has, simulate and search nothing");
  command.add_option("--time-limit", options->time_limit,
                     "end the search with twice the memory after this time (\"30 s\")");
  add_threads(command, options->threads, "the page");
  add_tolerance(command, options->tolerance);
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_report(*options); }; });
}

}  // namespace plimsoll
