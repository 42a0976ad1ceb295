// `planner check`, `compare` and `report`: commands that only read files that others wrote.
#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include "base/file.h"
#include "plan/check.h"
#include "plan/measured.h"
#include "plan/plan.h"
#include "planner/commands.h"
#include "reports/compare.h"
#include "reports/html.h"

namespace plimsoll {

ExitCode run_check(const CheckOptions& options) {
  const Plan plan = read_plan(options.plan);
  const std::vector<Violation> violations = check(plan);
  for (const Violation& violation : violations) {
    fmt::print("{}: {}\n", violation.rule, violation.message);
  }
  if (violations.empty()) {
    fmt::print("{}: all {} rules hold\n", options.plan, rules().size());
    return ExitCode::ok;
  }
  fmt::print(stderr, "planner: {}: {} violations\n", options.plan, violations.size());
  return ExitCode::bad_input;
}

ExitCode run_compare(const CompareOptions& options) {
  const Plan plan = read_plan(options.plan);
  const Measured measured = read_measured(options.measured);
  const Comparison comparison = compare(plan, measured, options.tolerance);
  fmt::print("{}", options.json ? comparison_json(comparison) : comparison_text(comparison));
  if (comparison.bytes_equal && comparison.time_within) return ExitCode::ok;
  fmt::print(stderr, "planner: {}\n", comparison.verdict);
  return ExitCode::outside_tolerance;
}

ExitCode run_report(const ReportOptions& options) {
  const Plan plan = read_plan(options.plan);
  std::optional<Measured> measured;
  if (!options.measured.empty()) measured = read_measured(options.measured);
  write_file_atomically(options.output, report_html(plan, measured, options.tolerance));
  fmt::print(stderr, "wrote {}\n", options.output);
  return ExitCode::ok;
}

}  // namespace plimsoll
