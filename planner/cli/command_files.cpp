// `planner check`, `compare` and `report`: commands that only read files that others wrote.
#include <fmt/format.h>

#include <array>
#include <optional>

#include "base/command_line.h"
#include "base/file.h"
#include "fitting/refit.h"
#include "models/calibration/calibration_file.h"
#include "models/presets/presets.h"
#include "plan/check.h"
#include "plan/measured.h"
#include "plan/plan.h"
#include "planner/cli/commands.h"
#include "planner/cli/summary_json.h"
#include "predict/cost_basis.h"
#include "predict/stage_memory.h"
#include "reports/compare.h"
#include "reports/html.h"

namespace plimsoll {

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

namespace {

/// Whether the plan was made with it.
void check_same(const char* flag, const std::string& file, const std::string& found,
                const std::string& wanted) {
  if (found == wanted) return;
  throw InputError(
      file, "",
      fmt::format("found the digest {}; the plan was made with {} {}",
                  found.empty() ? "of nothing" : found, flag, wanted.empty() ? "none" : wanted));
}

Refit refit_of(const CompareOptions& options, const Plan& plan, const Measured& measured) {
  if (plan.oversubscribed) {
    throw UsageError("--refit: the plan makes no timing claim: more ranks than cores");
  }
  const std::string cluster = read_file_or_preset(options.cluster, cluster_presets());
  check_same("--cluster", options.cluster, digest(cluster), plan.cluster_digest);
  const CalibrationChoice choice = read_calibration_choice(options.calibration);
  if (!choice.measured) {
    throw UsageError("--refit: none of --calibration was measured; a fit has no curves to correct");
  }
  check_same("--calibration", choice.measured_file, digest(choice.measured_text),
             plan.calibration_digest);
  const CostBasis basis =
      cost_basis(parse_cluster(cluster, options.cluster), plan.framework, choice, options.cluster);
  check_same("--calibration", basis.name, basis.rest_digest, plan.calibration_rest_digest);
  return refit(plan, measured, basis);
}

/// The file that was measured, with a fit that stands in it.
std::string refitted_text(const CompareOptions& options, const Refit& found) {
  const CalibrationChoice choice = read_calibration_choice(options.calibration);
  CalibrationFile file = parse_calibration_file(choice.measured_text, choice.measured_file);
  file.measured = found.calibration;
  return calibration_file_text(file);
}

}  // namespace

ExitCode run_compare(const CompareOptions& options) {
  if (options.refit && (options.cluster.empty() || options.calibration.empty())) {
    throw UsageError(
        "--refit: --cluster and --calibration that the plan was made with are required");
  }
  std::vector<std::string> inputs = options.calibration;
  inputs.insert(inputs.end(), {options.plan, options.measured, options.cluster});
  check_output("-o", options.output, inputs);
  const Plan plan = read_legal_plan(options.plan);
  const Measured measured = read_measured(options.measured);
  const Comparison comparison =
      compare(plan, measured, options.tolerance, {options.plan, options.measured});
  std::string text = options.json ? comparison_json(comparison) : comparison_text(comparison);
  if (options.refit) {
    const Refit found = refit_of(options, plan, measured);
    if (!options.output.empty()) {
      write_file_atomically(options.output, refitted_text(options, found));
      print_note(fmt::format("wrote {}\n", options.output));
    }
    text = options.json ? refit_json(text, found, options.output) : text + refit_text(found);
  }
  print_result(text);
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
