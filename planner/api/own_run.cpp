// Reads a script and its log, and refuses a log of another run.
#include "planner/api/own_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "base/error.h"

namespace plimsoll {
namespace {

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
        "a run moves the numbers of a fit or rates typical of training; ops that were measured "
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

}  // namespace

std::vector<OwnRun> read_runs(const LearnQuestion& question) {
  if (question.scripts.size() != question.logs.size()) {
    throw UsageError(fmt::format("found {} --from and {} --log; each run has both",
                                 question.scripts.size(), question.logs.size()));
  }
  for (auto log = question.logs.begin(); log != question.logs.end(); ++log) {
    if (std::find(question.logs.begin(), log, *log) != log)
      throw UsageError(fmt::format("found --log {} twice; a run counts once", *log));
  }
  std::vector<OwnRun> runs;
  for (std::size_t i = 0; i < question.scripts.size(); ++i) {
    runs.push_back(read_run(question.target, question.scripts[i], question.logs[i]));
    const std::string first = calibrated_as(runs.front().run.target.framework);
    const std::string found = calibrated_as(runs.back().run.target.framework);
    if (found == first) continue;
    throw InputError(question.scripts[i], "",
                     fmt::format("its framework has the numbers of {}; {} has those of {}", found,
                                 question.scripts[0], first));
  }
  return runs;
}

}  // namespace plimsoll
