// `planner learn`: the numbers of a cluster and of a framework, moved towards what one's own runs
// took.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/command_line.h"
#include "base/file.h"
#include "base/log_statistics.h"
#include "base/text.h"
#include "fitting/learn.h"
#include "interop/logs/training_log.h"
#include "planner/api/target.h"
#include "planner/cli/flags.h"
#include "planner/commands/commands.h"

namespace plimsoll {
namespace {

struct LearnOptions {
  std::vector<std::string> scripts, logs;  ///< by run
  TargetOptions target;
  std::string output;  ///< file; empty: none is written
  bool json = false;
};

/// A run of one's own: its script and its log, and what was read of both.
struct OwnRun {
  std::string script, file;
  TrainingLog log;
  SteadyPart steady;
  FitRun run;
  std::string basis;  ///< what its prediction rests on before
};

/// Returns the steps that a run is learned from. A printed clock is nearer to the truth than a
/// running mean.
SteadyPart steady_of(const TrainingLog& log, const std::string& file) {
  if (!log.steady) {
    throw InputError(file, "",
                     fmt::format("the log has {} steps of {}, and no time of a step; {}",
                                 log.distinct_steps, log.trainer, fmt::join(log.doubts, "; ")));
  }
  const bool smoothed = log.steady->basis == LogTimeBasis::smoothed;
  return smoothed && log.by_clock ? *log.by_clock : *log.steady;
}

/// Refuses a log of another run than the script's, as far as the log shows: by what its lines
/// print, and by the arguments that Megatron-LM and its forks print at the start
/// (megatron/training/ arguments.py).
void check_same_run(const OwnRun& own, const Target& target, const Strategy& strategy) {
  const auto check = [&](const std::string& what, std::optional<double> printed,
                         std::int64_t stated) {
    if (!printed || std::llround(*printed) == stated) return;
    throw InputError(
        own.file, "",
        fmt::format("found {} {}; {} states {}", what, std::llround(*printed), own.script, stated));
  };
  const Job& job = target.job;
  const auto median = [&](LogQuantity quantity) { return own.log.medians[std::size_t(quantity)]; };
  check("a global batch of", median(LogQuantity::samples), job.global_batch);
  check("a sequence length of", median(LogQuantity::sequence), job.sequence);
  const std::pair<const char*, std::int64_t> arguments[] = {
      {"world_size", target.devices},
      {"tensor_model_parallel_size", strategy.mp},
      {"pipeline_model_parallel_size", strategy.pp},
      {"num_layers", job.layers},
      {"hidden_size", job.hidden}};
  for (const auto& [name, stated] : arguments) {
    const auto printed = own.log.arguments.find(name);
    if (printed == own.log.arguments.end()) continue;
    std::int64_t value = 0;
    const std::string& text = printed->second.value;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (read.ec == std::errc()) check(name, double(value), stated);
  }
}

OwnRun read_run(TargetOptions options, const std::string& script, const std::string& file) {
  TrainingLog log = read_training_log(file);
  SteadyPart steady = steady_of(log, file);
  OwnRun own{script, file, std::move(log), std::move(steady), {}, ""};
  options.from = script;
  // The prior is built in: nothing is learned from the same runs twice.
  if (options.calibration.empty()) options.calibration = {std::string(kBuiltInCalibration)};
  read_from(options);
  const LoadedTarget loaded = load_target(options, Bytes(0));
  const Target& target = loaded.target;
  check_same_run(own, target, *options.imported->strategy);
  const CostModel& costs = *target.costs;
  own.basis = loaded.source.words;
  if (costs.calibration() || !costs.cluster().efficiency) {
    throw UsageError(
        "learn: it moves the numbers of a fit or rates typical of training; ops that were measured "
        "stay as they are (planner compare --refit)");
  }
  PublishedTarget placed;
  placed.job = target.job;
  placed.cluster = costs.cluster();
  placed.device = placed.cluster.device;
  placed.framework = costs.framework();
  placed.fitted = costs.fitted();
  placed.calibration = loaded.source.name;
  placed.devices = target.devices;
  placed.strategies = {
      legal_strategy(target.job, target.framework(), *options.imported->strategy, target.devices)};
  std::optional<FitRun> run = fit_run(std::move(placed), own.steady.median);
  if (!run)
    throw InfeasibleError(fmt::format("{}: a step of this script cannot be predicted", script));
  own.run = std::move(*run);
  return own;
}

std::vector<OwnRun> read_runs(const LearnOptions& options) {
  if (options.scripts.size() != options.logs.size()) {
    throw UsageError(fmt::format("learn: found {} --from and {} --log; each run has both",
                                 options.scripts.size(), options.logs.size()));
  }
  for (auto log = options.logs.begin(); log != options.logs.end(); ++log) {
    if (std::find(options.logs.begin(), log, *log) != log)
      throw UsageError(fmt::format("learn: found --log {} twice; a run counts once", *log));
  }
  std::vector<OwnRun> runs;
  for (std::size_t i = 0; i < options.scripts.size(); ++i) {
    runs.push_back(read_run(options.target, options.scripts[i], options.logs[i]));
    const std::string first = calibrated_as(runs.front().run.target.framework);
    const std::string found = calibrated_as(runs.back().run.target.framework);
    if (found == first) continue;
    throw InputError(options.scripts[i], "",
                     fmt::format("its framework has the numbers of {}; {} has those of {}", found,
                                 options.scripts[0], first));
  }
  return runs;
}

std::string left_out_text(const SteadyPart& steady) {
  std::array<std::int64_t, 5> counts{};
  for (const LeftOutStep& step : steady.left_out) ++counts[std::size_t(step.reason)];
  std::vector<std::string> words;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) words.push_back(fmt::format("{} {}", counts[i], kLeftOutReasons[i]));
  }
  return words.empty() ? "" : fmt::format("; left out: {}", fmt::join(words, ", "));
}

/// "-12.3 %" of a predicted step.
std::string error_text(Seconds predicted, Seconds measured) {
  return fmt::format("{:+.1f} %", 100 * (predicted / measured - 1));
}

std::string runs_text(const std::vector<OwnRun>& own, const Learned& learned) {
  std::string text;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const LearnedRun& run = learned.runs[i];
    const SteadyPart& steady = own[i].steady;
    text += fmt::format("{}: {}, {} of {} steps{}\n", own[i].file, own[i].log.trainer, steady.steps,
                        own[i].log.distinct_steps, left_out_text(steady));
    text += fmt::format(
        "  step {} (half of them {} to {}); predicted before {} ({}), now {} ({})\n",
        to_text(run.measured), to_text(steady.lower_quartile), to_text(steady.upper_quartile),
        to_text(run.before), error_text(run.before, run.measured), to_text(run.after),
        error_text(run.after, run.measured));
    if (run.left_out) {
      text += fmt::format(
          "  by the other runs {:+.1f} %, expected within +-{:.1f} %{}\n",
          100 * std::expm1(-run.left_out->error),
          100 * std::expm1(kNormal90 * run.left_out->deviation),
          run.contradicts ? ": they contradict it, and nothing was learned from it" : "");
    }
    if (run.unlikely)
      text += "  this is unlikely: check that the log is of this script and this cluster\n";
    for (const std::string& doubt : own[i].log.doubts) text += fmt::format("  {}\n", doubt);
  }
  return text;
}

std::string values_text(const std::vector<OwnRun>& own, const FittedCalibration& fitted) {
  std::string text = fmt::format("{:36}{:>11}{:>11}  90 %\n", "learned", "before", "now");
  std::vector<std::string> open;
  for (const FittedValue& value : fitted.values) {
    if (!value.determined) {
      open.push_back(value.name);
      continue;
    }
    text += fmt::format("  {:34}{:>11.4g}{:>11.4g}  {:.4g} to {:.4g}\n", value.name, value.prior,
                        value.value, value.low, value.high);
  }
  std::vector<LayerShape> known;
  for (const OwnRun& one : own) {
    const LayerShape& shape = one.run.shape;
    if (std::ranges::find(known, shape) != known.end()) continue;
    known.push_back(shape);
    text += fmt::format("  {:34}{:>11.3f}{:>11.3f}\n",
                        fmt::format("layers, {} tokens, mp {}", shape.tokens, shape.mp),
                        one.run.layer_factor,
                        std::ranges::find(fitted.layers, shape, &LayerPoint::shape)->factor);
  }
  if (!open.empty())
    text +=
        fmt::format("  hardly moved, since no run depends much on it: {}\n", fmt::join(open, ", "));
  return text;
}

std::string learned_text(const std::vector<OwnRun>& own, const Learned& learned) {
  const PublishedTarget& target = own[0].run.target;
  return fmt::format(
      "{} {} on {} with {}; before: {}\n{}\n{}\nother steps like these: +-{:.0f} % (90 %), before "
      "+-{:.0f} %\n",
      own.size(), own.size() == 1 ? "run" : "runs", target.cluster.name, target.framework.name,
      own[0].basis, runs_text(own, learned), values_text(own, learned.fitted),
      100 * learned.half_width, 100 * learned.half_width_before);
}

Json learned_json(const std::vector<OwnRun>& own, const Learned& learned,
                  const std::string& output) {
  Json runs = Json::array();
  for (std::size_t i = 0; i < own.size(); ++i) {
    const LearnedRun& run = learned.runs[i];
    const SteadyPart& steady = own[i].steady;
    Json json = {{"script", own[i].script},
                 {"log", own[i].file},
                 {"trainer", own[i].log.trainer},
                 {"steps", steady.steps},
                 {"left_out_steps", steady.left_out.size()},
                 {"measured_s", run.measured.value()},
                 {"lower_quartile_s", steady.lower_quartile.value()},
                 {"upper_quartile_s", steady.upper_quartile.value()},
                 {"before_s", run.before.value()},
                 {"after_s", run.after.value()}};
    if (run.left_out) {
      json["by_others"] = {{"error", std::expm1(-run.left_out->error)},
                           {"half_width", std::expm1(kNormal90 * run.left_out->deviation)}};
    }
    json["unlikely"] = run.unlikely;
    json["contradicts"] = run.contradicts;
    json["doubts"] = own[i].log.doubts;
    runs.push_back(std::move(json));
  }
  Json values = Json::array();
  for (const FittedValue& value : learned.fitted.values) {
    values.push_back({{"name", value.name},
                      {"before", value.prior},
                      {"value", value.value},
                      {"low", value.low},
                      {"high", value.high},
                      {"determined", value.determined}});
  }
  return {{"cluster", learned.fitted.cluster},
          {"framework", learned.fitted.framework},
          {"basis", own[0].basis},
          {"runs", std::move(runs)},
          {"values", std::move(values)},
          {"noise", learned.fitted.learned->noise},
          {"half_width", learned.half_width},
          {"half_width_before", learned.half_width_before},
          {"output", output.empty() ? Json(nullptr) : Json(output)}};
}

/// Makes the folder in which commands look.
void make_learned_folder(const std::filesystem::path& output) {
  const std::filesystem::path folder = output.parent_path();
  std::error_code unmade;  // writing the file names the fault
  if (folder.filename() == ".plimsoll") std::filesystem::create_directory(folder, unmade);
}

ExitCode run_learn(const LearnOptions& options) {
  std::vector<std::string> inputs = options.scripts;
  inputs.insert(inputs.end(), options.logs.begin(), options.logs.end());
  inputs.push_back(options.target.cluster);
  make_learned_folder(options.output);
  check_output("-o", options.output, inputs);
  const std::vector<OwnRun> own = read_runs(options);
  std::vector<FitRun> runs;
  for (const OwnRun& one : own) runs.push_back(one.run);
  Learned learned = learn(std::move(runs), own[0].run.target.fitted);
  for (const OwnRun& one : own) learned.fitted.sources.push_back(one.file);
  if (!options.output.empty()) {
    const std::string text = fitted_calibration_text(learned.fitted);
    parse_fitted_calibration(text, options.output);  // what is written can be read
    write_file_atomically(options.output, text);
    print_note(fmt::format("wrote {}\n", options.output));
  }
  print_result(options.json ? json_text(learned_json(own, learned, options.output))
                            : in_columns(learned_text(own, learned)));
  return ExitCode::ok;
}

}  // namespace

void add_learn(CLI::App& app, Action& action) {
  const auto options = std::make_shared<LearnOptions>();
  CLI::App& command =
      *app.add_subcommand("learn", "learn a cluster's numbers from scripts of runs and their logs");
  command
      .add_option("--from", options->scripts,
                  "launch script or settings of a run; once for each run, in the order of --log")
      ->allow_extra_args(false)
      ->required();
  command.add_option("--log", options->logs, "what the trainer of that run printed")
      ->allow_extra_args(false)
      ->required();
  add_job(command, options->target, false);
  add_machine(command, options->target);
  command.add_option("-o,--output", options->output, "write the calibration here");
  add_json(command, options->json);
  command.callback([options, &action] { action = [options] { return run_learn(*options); }; });
}

}  // namespace plimsoll
