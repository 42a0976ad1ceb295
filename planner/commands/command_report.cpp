// `planner report`: a plan as one HTML page.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <memory>
#include <optional>

#include "base/command_line.h"
#include "base/file.h"
#include "plan/measured.h"
#include "planner/cli/flags.h"
#include "planner/cli/summary_json.h"
#include "planner/commands/commands.h"
#include "reports/compare.h"
#include "reports/html.h"

namespace plimsoll {
namespace {

struct ReportOptions {
  std::string plan, measured, output;
  double tolerance = 0.30;
  bool json = false;
};

ExitCode run_report(const ReportOptions& options) {
  check_output("-o", options.output, std::array{options.plan, options.measured});
  const Plan plan = read_legal_plan(options.plan);
  std::optional<Measured> measured;
  std::optional<std::string> verdict;
  if (!options.measured.empty()) {
    measured = read_measured(options.measured);
    verdict = compare(plan, *measured, options.tolerance, {options.plan, options.measured}).verdict;
  }
  write_file_atomically(options.output, report_html(plan, measured, options.tolerance));
  print_note(fmt::format("wrote {}\n", options.output));
  if (options.json) print_result(report_json(options.output, verdict));
  return ExitCode::ok;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  const auto options = std::make_shared<ReportOptions>();
  CLI::App& command = *app.add_subcommand("report", "one self-contained HTML page");
  command.add_option("PLAN", options->plan, "plan file")->required();
  command.add_option("MEASURED", options->measured, "what planner run wrote");
  command.add_option("-o,--output", options->output, "write the page here")->required();
  add_tolerance(command, options->tolerance);
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_report(*options); }; });
}

}  // namespace plimsoll
