// `planner compare`: predicted against measured, and a calibration corrected by the difference.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/command_line.h"
#include "base/file.h"
#include "fitting/refit.h"
#include "models/calibration/calibration_file.h"
#include "models/presets/presets.h"
#include "plan/measured.h"
#include "planner/api/plan_target.h"
#include "planner/api/run_findings.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"
#include "predict/cost_basis.h"
#include "reports/compare.h"

namespace plimsoll {
namespace {

struct CompareOptions {
  std::string plan, measured;
  double tolerance = 0.30;
  bool json = false;
  /// Corrects the calibration that the plan was made with, and writes it to `output` where given.
  bool refit = false;
  std::string output;
  std::string job_output;  ///< where the job goes with the load of experts that was measured
  LearnQuestion runs;      ///< its cluster and calibration are the plan's, too; no log: none
};

Refit refit_of(const CompareOptions& options, const Plan& plan, const Measured& measured) {
  if (plan.oversubscribed) {
    throw UsageError("--refit: the plan makes no timing claim: more ranks than cores");
  }
  const std::string cluster = read_file_or_preset(options.runs.target.cluster, cluster_presets());
  check_same("--cluster", options.runs.target.cluster, digest(cluster), plan.cluster_digest);
  const CalibrationChoice choice = read_calibration_choice(options.runs.target.calibration);
  if (!choice.measured) {
    throw UsageError("--refit: none of --calibration was measured; a fit has no curves to correct");
  }
  check_same("--calibration", choice.measured_file, digest(choice.measured_text),
             plan.calibration_digest);
  const CostBasis basis = cost_basis(parse_cluster(cluster, options.runs.target.cluster),
                                     plan.framework, choice, options.runs.target.cluster);
  check_same("--calibration", basis.source.name, basis.source.rest_digest,
             plan.calibration_rest_digest);
  return refit(plan, measured, basis);
}

/// Returns the measured file with the corrected calibration, and with its fit if it has one.
std::string refitted_text(const CompareOptions& options, const Refit& found) {
  const CalibrationChoice choice = read_calibration_choice(options.runs.target.calibration);
  CalibrationFile file = parse_calibration_file(choice.measured_text, choice.measured_file);
  file.measured = found.calibration;
  return calibration_file_text(file);
}

std::string drift_text(const std::vector<LearnedFrom>& runs) {
  std::string text = fmt::format("expected by: {}\n", runs[0].own.basis);
  for (const LearnedFrom& one : runs) {
    text += fmt::format("{}: {} the interval of one more run\n", one.own.file,
                        is_expected(one.own, one.run()) ? "within" : "outside");
    text += run_lines(one.own, one.run());
  }
  return text;
}

Json drift_json(const std::vector<LearnedFrom>& runs, bool all_expected) {
  Json json = {
      {"basis", runs[0].own.basis}, {"all_expected", all_expected}, {"runs", Json::array()}};
  for (const LearnedFrom& one : runs) json["runs"].push_back(run_json(one.own, one.run()));
  return json;
}

/// Compares logs with the steps that follow from what was learned before. One script may have
/// several logs.
ExitCode compare_logs(const CompareOptions& options) {
  LearnQuestion question = options.runs;
  question.on_learned = true;
  if (question.scripts.size() == 1)
    question.scripts.resize(question.logs.size(), question.scripts[0]);
  const std::vector<LearnedFrom> runs = learn_one_by_one(question);
  const auto& fitted = runs[0].own.run.target.fitted;
  if (options.runs.target.calibration.empty() && !(fitted && fitted->learned)) {
    throw UsageError(
        "--log: nothing was learned for this cluster and framework (planner learn -o "
        ".plimsoll/mine.json); name a calibration with --calibration");
  }
  const auto outside = std::ranges::count_if(
      runs, [](const LearnedFrom& one) { return !is_expected(one.own, one.run()); });
  print_result(options.json ? json_text(drift_json(runs, outside == 0)) : drift_text(runs));
  if (outside == 0) return ExitCode::ok;
  print_note(
      fmt::format("planner: {} of {} logs are outside the interval\n", outside, runs.size()));
  return ExitCode::outside_tolerance;
}

ExitCode run_compare(const CompareOptions& options) {
  if (!options.runs.logs.empty()) return compare_logs(options);
  if (options.measured.empty())
    throw UsageError("PLAN and MEASURED, or --from and --log, are required");
  if (!options.refit &&
      (!options.runs.target.cluster.empty() || !options.runs.target.calibration.empty()))
    throw UsageError("--cluster and --calibration require --refit or --log");
  if (options.refit &&
      (options.runs.target.cluster.empty() || options.runs.target.calibration.empty())) {
    throw UsageError(
        "--refit: --cluster and --calibration that the plan was made with are required");
  }
  std::vector<std::string> inputs = options.runs.target.calibration;
  inputs.insert(inputs.end(), {options.plan, options.measured, options.runs.target.cluster});
  check_output("-o", options.output, inputs);
  check_output("--job-output", options.job_output, inputs);
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
  if (!options.job_output.empty()) {
    if (!measured_load(measured)) {
      throw UsageError(
          "--job-output: the run did not measure a load of experts; that needs ep above 1");
    }
    write_file_atomically(options.job_output, job_text(with_measured_load(plan.job, measured)));
    print_note(fmt::format("wrote {}\n", options.job_output));
  }
  print_result(text);
  if (comparison.bytes_equal && comparison.time_within) return ExitCode::ok;
  print_note(fmt::format("planner: {}\n", comparison.verdict));
  return ExitCode::outside_tolerance;
}

}  // namespace

void add_compare(CLI::App& app, Action& action) {
  const auto options = std::make_shared<CompareOptions>();
  CLI::App& command = *app.add_subcommand(
      "compare", "predicted against measured: a plan's run, or logs against what was learned");
  CLI::Option* plan = command.add_option("PLAN", options->plan, "plan file");
  CLI::Option* measured =
      command.add_option("MEASURED", options->measured, "what planner run wrote");
  add_tolerance(command, options->tolerance);
  CLI::Option* refit =
      command.add_flag("--refit", options->refit,
                       "correct the calibration by what was measured, and say by how much");
  CLI::Option* from =
      command
          .add_option("--from", options->runs.scripts,
                      "instead of PLAN: script of runs; once for all logs, or once for each --log")
          ->allow_extra_args(false);
  CLI::Option* log =
      command
          .add_option("--log", options->runs.logs,
                      "log of a run; exit code 7 if its step is outside the learned interval")
          ->allow_extra_args(false)
          ->needs(from);
  log->excludes(command.get_option("--tolerance"));
  from->needs(log)->excludes(plan)->excludes(measured)->excludes(refit);
  command.add_option("--cluster", options->runs.target.cluster,
                     "the plan's cluster file with --refit, or that of the runs");
  command
      .add_option("--calibration", options->runs.target.calibration,
                  "with --refit: the plan's, given as to plan; with --log: what was learned")
      ->allow_extra_args(false);
  command
      .add_option("--devices", options->runs.target.devices,
                  "with --log: how many, if the script does not state it")
      ->needs(log);
  command
      .add_option("-o,--output", options->output, "with --refit: write the new calibration here")
      ->needs(refit);
  command
      .add_option("--job-output", options->job_output,
                  "write the plan's job here, with the load of experts that was measured")
      ->excludes(from);
  add_reading(command, options->runs.target);
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_compare(*options); }; });
}

}  // namespace plimsoll
