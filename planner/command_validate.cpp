// `planner validate`: published runs, predicted.
#include <filesystem>

#include "base/command_line.h"
#include "base/file.h"
#include "planner/commands.h"
#include "planner/fit.h"
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
  std::vector<ValidatedFamily> families;
  for (const std::string& file : options.cases) {
    families.push_back(
        validate(std::filesystem::path(file).stem().string(), read_published_runs(file)));
  }
  print_result(options.json ? validation_json(families) : validation_text(families));
  return ExitCode::ok;
}

}  // namespace plimsoll
