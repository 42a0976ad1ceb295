// `planner check`, `compare` and `report`: commands that only read files that others wrote.
#include <fmt/format.h>

#include <array>
#include <optional>

#include "base/command_line.h"
#include "base/file.h"
#include "plan/check.h"
#include "plan/measured.h"
#include "plan/plan.h"
#include "planner/commands.h"
#include "planner/summary_json.h"
#include "reports/compare.h"
#include "reports/html.h"

namespace plimsoll {

ExitCode run_check(const CheckOptions& options) {
  const Plan plan = read_plan(options.plan);
  const std::vector<Violation> violations = check(plan);
  if (options.json) {
    print_result(check_json(violations));
  } else if (violations.empty()) {
    print_result(fmt::format("{}: all {} rules hold\n", options.plan, rules().size()));
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

ExitCode run_compare(const CompareOptions& options) {
  const Plan plan = read_legal_plan(options.plan);
  const Measured measured = read_measured(options.measured);
  const Comparison comparison =
      compare(plan, measured, options.tolerance, {options.plan, options.measured});
  print_result(options.json ? comparison_json(comparison) : comparison_text(comparison));
  if (comparison.bytes_equal && comparison.time_within) return ExitCode::ok;
  print_note(fmt::format("planner: {}\n", comparison.verdict));
  return ExitCode::outside_tolerance;
}

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

}  // namespace plimsoll
