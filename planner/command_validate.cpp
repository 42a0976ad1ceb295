// `planner validate`: published runs, predicted.
#include <algorithm>
#include <filesystem>

#include "base/command_line.h"
#include "base/file.h"
#include "planner/commands.h"
#include "planner/fit.h"
#include "planner/goals.h"
#include "planner/validate.h"

namespace plimsoll {

namespace {

std::vector<PublishedRun> read_all(const std::vector<std::string>& files) {
  std::vector<PublishedRun> runs;
  for (const std::string& file : files) {
    for (PublishedRun& run : read_published_runs(file)) runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace

ExitCode run_fit(const FitCommandOptions& options) {
  check_output("-o", options.output, options.cases);
  const Fit found =
      fit(read_all(options.cases), {.cluster = options.cluster, .framework = options.framework});
  const std::string text = fitted_calibration_text(found.fitted);
  if (!options.output.empty()) write_file_atomically(options.output, text);
  print_result(options.json ? text : fit_text(found));
  return ExitCode::ok;
}

ExitCode run_validate(const ValidateOptions& options) {
  std::vector<Goal> goals;
  if (!options.goals.empty()) goals = parse_goals(read_file(options.goals), options.goals);
  std::vector<ValidatedFamily> families;
  for (const std::string& file : options.cases) {
    families.push_back(
        validate(std::filesystem::path(file).stem().string(), read_published_runs(file)));
  }
  std::vector<GoalResult> results;
  if (!options.goals.empty()) results = check_goals(goals, families, options.goals);
  print_result(options.json ? validation_json(families, results)
                            : validation_text(families) +
                                  (options.goals.empty() ? "" : goals_text(results)));
  const bool met = std::all_of(results.begin(), results.end(),
                               [](const GoalResult& result) { return result.met; });
  return met ? ExitCode::ok : ExitCode::outside_tolerance;
}

}  // namespace plimsoll
