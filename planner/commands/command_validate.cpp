// `planner validate` and `fit`: published runs and ops, predicted and fitted.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/command_line.h"
#include "base/file.h"
#include "base/text.h"
#include "fitting/fit.h"
#include "fitting/fit_ops.h"
#include "fitting/op_measurement.h"
#include "models/framework/allocator_trace.h"
#include "models/presets/preset_names.h"
#include "models/presets/presets.h"
#include "planner/api/target.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"
#include "planner/terminal/progress.h"
#include "published/goals.h"
#include "published/trace_validation.h"
#include "published/validate.h"

namespace plimsoll {
namespace {

struct ValidateOptions {
  std::vector<std::string> cases;        ///< files of published runs
  std::string goals;                     ///< file of bounds; empty: none
  std::vector<std::string> calibration;  ///< as read_calibration_choice() takes it
  bool leave_out_sources = false;        ///< CalibrationChoice::leave_out_source
  std::string inputs;  ///< folder for the job and the cluster of each run; empty: none are written
  bool rows = false;   ///< print what each run was taken for
  bool json = false;
};

struct RunsOfFile {
  std::string name;  ///< without folder and .json
  std::vector<PublishedRun> runs;
};

struct FitCommandOptions {
  std::vector<std::string> cases;  ///< files of published runs
  std::string cluster;             ///< file, or name of a preset
  std::string framework;           ///< name of a preset
  std::string output;              ///< file; empty: none is written
  std::string without;             ///< folder of fits without a document; empty: none are written
  bool json = false;
};

std::vector<PublishedRun> read_all(const std::vector<std::string>& files) {
  std::vector<PublishedRun> runs;
  for (const std::string& file : files) {
    for (PublishedRun& run : read_published_runs(file)) runs.push_back(std::move(run));
  }
  return runs;
}

/// Returns the name of the framework whose numbers a fit finds.
std::string fitted_framework(const std::string& name) {
  const Framework framework = read_framework(name);
  const std::string numbers = calibrated_as(framework);
  if (numbers == framework.name) return numbers;
  throw UsageError(fmt::format("--framework {}: it has the numbers of {}: --framework {}", name,
                               numbers, numbers));
}

/// Makes a folder for files that a flag asks for.
void make_folder(const char* flag, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return;
  throw EnvironmentError(fmt::format("{} {}: {}", flag, folder.string(), error.message()));
}

/// Returns the fit of files of timed ops or of timed collectives; nothing for files of runs.
std::optional<OpFit> fit_of_timings(const FitCommandOptions& options) {
  std::vector<OpMeasurement> ops;
  std::vector<CollectiveMeasurement> collectives;
  std::array<std::string, 3> files;  // the last of each sort
  for (const std::string& file : options.cases) {
    const std::string text = read_file(file);
    if (is_op_measurements(text, file)) {
      files[0] = file;
      for (OpMeasurement& op : parse_op_measurements(text, file).ops) ops.push_back(std::move(op));
    } else if (is_collective_measurements(text, file)) {
      files[1] = file;
      for (CollectiveMeasurement& point : parse_collective_measurements(text, file).points)
        collectives.push_back(std::move(point));
    } else {
      files[2] = file;
    }
  }
  if (files[0].empty() && files[1].empty()) return std::nullopt;
  const bool alone = std::ranges::count_if(files, &std::string::empty) == 2;
  if (!alone) {
    throw InputError(files[2].empty() ? files[1] : files[2], "",
                     "files of ops, of collectives and of runs are each fitted by themselves");
  }
  if (!options.output.empty()) {
    throw InputError(options.output, "",
                     "a calibration is of runs; what ops say belongs to the cluster file: --json");
  }
  const Cluster cluster = read_cluster(options.cluster);
  return files[0].empty() ? fit_collectives(collectives, cluster) : fit_ops(ops, cluster);
}

std::string rest_words(const CalibrationChoice& choice) {
  switch (choice.rest) {
    case CalibrationChoice::Rest::built_in:
      return "what was fitted for each run's device and framework, else rates typical of training";
    case CalibrationChoice::Rest::typical:
      return "rates typical of training";
    case CalibrationChoice::Rest::given:
      return choice.fitted_file + ", of the runs that it is for";
    case CalibrationChoice::Rest::none:
      break;
  }
  return "none, the clusters' own numbers";
}

/// Returns a row's id as the name of a file.
std::string file_name_of(std::string id) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.';
  };
  std::ranges::replace_if(id, std::not_fn(plain), '_');
  return id;
}

/// Writes the job, cluster and framework of each prediction, so that the same job can be planned.
/// The strategy and the numbers of a calibration are not among them.
void write_inputs(const std::filesystem::path& folder, std::span<const PublishedRun> runs) {
  for (const PublishedRun& run : runs) {
    const PublishedTarget target = published_target(run, own_numbers());
    if (!target.missing.empty()) continue;
    const std::string name = file_name_of(run.id);
    write_file_atomically(folder / (name + ".job.json"), job_text(target.job));
    write_file_atomically(folder / (name + ".cluster.json"), cluster_text(target.cluster));
  }
}

/// Returns the first line of a result.
std::string choice_words(const CalibrationChoice& choice) {
  const std::string measured =
      choice.measured ? choice.measured_file + ", measured; for the rest " : "";
  return fmt::format("calibration: {}{}\n", measured, rest_words(choice));
}

/// Writes CLUSTER--FRAMEWORK--without--DOCUMENT.json for each document that a fit was left without.
void write_without(const std::filesystem::path& folder, const Fit& fit) {
  for (const FitWithout& one : fit.without) {
    const std::filesystem::path file =
        folder / fmt::format("{}--{}--without--{}.json", file_name_of(one.fitted.cluster),
                             one.fitted.framework, file_name_of(one.document));
    write_file_atomically(file, fitted_calibration_text(one.fitted));
    print_note(fmt::format("wrote {}\n", file.string()));
  }
}

ExitCode run_fit(const FitCommandOptions& options) {
  check_output("-o", options.output, options.cases);
  if (!options.without.empty()) make_folder("--without", options.without);
  if (const auto found = fit_of_timings(options)) {
    print_result(options.json ? op_fit_json(*found) : in_columns(fit_text(*found)));
    return ExitCode::ok;
  }
  std::vector<PublishedRun> runs = read_all(options.cases);
  const std::string cluster = cluster_file(options.cluster);
  const auto preset =
      std::filesystem::exists(cluster) ? std::nullopt : preset_meant(cluster, cluster_presets());
  FitOptions request{.cluster = std::string(preset.value_or(cluster)),
                     .framework = fitted_framework(options.framework),
                     .without = !options.without.empty()};
  if (!preset) {
    const Cluster own = read_cluster(cluster);
    request.cluster = own.name;
    for (PublishedRun& run : runs) put_on(own, run);
  }
  Progress progress("fits done:");
  request.progress = [&](std::int64_t done, std::int64_t of) { progress.update(done, of); };
  const Fit found = fit(runs, request);
  progress.clear();
  const std::string text = fitted_calibration_text(found.fitted);
  if (!options.output.empty()) {
    write_file_atomically(options.output, text);
    print_note(fmt::format("wrote {}\n", options.output));
  }
  if (!options.without.empty()) write_without(options.without, found);
  print_result(options.json ? text : in_columns(fit_text(found)));
  return ExitCode::ok;
}

ExitCode run_validate(const ValidateOptions& options) {
  std::vector<Goal> goals;
  if (!options.goals.empty()) goals = parse_goals(read_file(options.goals), options.goals);
  CalibrationChoice calibration = read_calibration_choice(options.calibration);
  calibration.leave_out_source = options.leave_out_sources;
  if (!options.inputs.empty()) make_folder("--inputs", options.inputs);
  std::vector<ValidatedFamily> families;
  std::vector<ValidatedTraces> traces;
  std::vector<RunsOfFile> files;
  std::int64_t all = 0;
  for (const std::string& file : options.cases) {
    const std::string name = std::filesystem::path(file).stem().string();
    const std::string text = read_file(file);
    if (is_allocator_traces(text, file)) {
      traces.push_back(validate_traces(name, parse_allocator_traces(text, file)));
      continue;
    }
    files.push_back({name, read_published_runs(file)});
    const std::vector<PublishedRun>& runs = files.back().runs;
    all += std::int64_t(runs.size());
    if (!options.inputs.empty()) write_inputs(options.inputs, runs);
  }
  Progress progress("runs predicted:");
  std::atomic<std::int64_t> done = 0;
  const auto after_each = [&] { progress.update(++done, all); };
  for (const RunsOfFile& file : files)
    families.push_back(validate(file.name, file.runs, calibration, after_each));
  progress.clear();
  std::vector<GoalResult> results;
  if (!options.goals.empty()) results = check_goals(goals, families, options.goals);
  print_result(options.json
                   ? validation_json(families, results, traces)
                   : in_columns(choice_words(calibration) +
                                validation_text(families, options.rows) + traces_text(traces) +
                                (options.goals.empty() ? "" : goals_text(results))));
  const bool met = std::all_of(results.begin(), results.end(),
                               [](const GoalResult& result) { return result.met; });
  const bool exact = std::all_of(traces.begin(), traces.end(), [](const ValidatedTraces& file) {
    return std::ranges::all_of(file.replays, &TraceReplay::exact);
  });
  return met && exact ? ExitCode::ok : ExitCode::outside_tolerance;
}

}  // namespace

void add_validate(CLI::App& app, Action& action) {
  const auto options = std::make_shared<ValidateOptions>();
  CLI::App& command = *app.add_subcommand("validate", "predict published runs: how far off");
  command
      .add_option(
          "CASES", options->cases,
          "files of published runs as stated rows (planner schema published-runs), or of PyTorch "
          "allocator traces, which are replayed; exit 7 if a replay is not exact")
      ->required();
  command.add_option("--goals", options->goals, "file of bounds; exit 7 if one is missed");
  add_calibration(command, options->calibration);
  command.add_flag("--leave-out-sources", options->leave_out_sources,
                   "predict each run without the runs of its document in built-in fits");
  command.add_option("--inputs", options->inputs,
                     "write the job and the cluster of each run that is predicted into this "
                     "folder, as plan and simulate take them");
  command.add_flag("--rows", options->rows,
                   "print the cluster, framework, calibration and strategy that each run was taken "
                   "for; without it, those of files with at most 8 runs");
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_validate(*options); }; });
}

void add_fit(CLI::App& app, Action& action) {
  const auto options = std::make_shared<FitCommandOptions>();
  CLI::App& command = *app.add_subcommand(
      "fit", "fit a cluster's and a framework's numbers on measured runs, published or your own");
  command
      .add_option(
          "CASES", options->cases,
          "files of runs as stated rows (planner schema published-runs), of timed ops alone, or of "
          "timed collectives alone")
      ->required();
  command
      .add_option("--cluster", options->cluster,
                  "cluster preset or file; runs on the device of a file count as its own")
      ->required();
  command.add_option("--framework", options->framework, "name of a framework preset")->required();
  command.add_option("-o,--output", options->output, "write the fitted calibration here");
  command.add_option("--without", options->without,
                     "fit again without the runs of each document, and write these fits into this "
                     "folder");
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_fit(*options); }; });
}

}  // namespace plimsoll
