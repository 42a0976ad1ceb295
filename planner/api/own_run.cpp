// Reads a script and its log, and refuses a log of another run.
#include "planner/api/own_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/text.h"
#include "passes/strategy/sharding_rules.h"
#include "predict/tried_layouts.h"

namespace plimsoll {
namespace {

/// Returns the steps that a run is learned from. A printed clock is nearer to the truth than a
/// running mean. If the log prints a rate only, the script states the batch.
SteadyPart steady_of(const TrainingLog& log, const Target& target, const std::string& file) {
  if (log.steady) {
    const bool smoothed = log.steady->basis == LogTimeBasis::smoothed;
    return smoothed && log.by_clock ? *log.by_clock : *log.steady;
  }
  std::vector<LogStep> steps = log.steps;
  for (LogStep& step : steps) {
    const auto fill_in = [&](LogQuantity quantity, double value) {
      auto& known = step.values[std::size_t(quantity)];
      if (!known) known = value;
    };
    fill_in(LogQuantity::samples, double(target.job.global_batch));
    fill_in(LogQuantity::sequence, double(target.job.sequence));
    if (const auto rate = step.value(LogQuantity::device_tokens_per_second))
      fill_in(LogQuantity::tokens_per_second, *rate * double(target.devices));
  }
  if (const auto steady = steady_part(steps, LogTimeBasis::throughput)) return *steady;
  throw InputError(file, "",
                   fmt::format("the log has {} steps of {}, and no time of a step; {}",
                               log.distinct_steps, log.trainer, fmt::join(log.doubts, "; ")));
}

/// Refuses a log of another run than the script's, as far as the log shows: by what its lines
/// print, and by the arguments that Megatron-LM and its forks print at the start
/// (megatron/training/arguments.py).
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
      {"context_parallel_size", strategy.cp},
      {"expert_model_parallel_size", strategy.ep},
      {"micro_batch_size", strategy.micro_batch},
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

/// Returns the peaks that the log prints, each of the rank with the most, next to what that rank is
/// predicted to have. A report without a rank counts if all ranks have one Program.
std::vector<LoggedPeak> logged_peaks(const TrainingLog& log, const Target& target,
                                     const Strategy& strategy) {
  std::vector<LoggedPeak> peaks;
  if (log.memory.empty() || has_arena(target.framework())) return peaks;
  const std::vector<StagePrediction> stages = lay_out(target, strategy, Proof::none).stages;
  const auto add = [&](MemoryKind kind, LogQuantity quantity, Bytes StagePrediction::*bytes) {
    const std::size_t at = std::size_t(quantity) - kStepQuantities;
    const auto value = [&](const LogMemory& one) { return one.bytes[at].value_or(0); };
    const LogMemory& most = *std::ranges::max_element(log.memory, {}, value);
    if (value(most) <= 0) return;
    const bool of_rank = most.rank && *most.rank < target.devices;
    if (!of_rank && stages.size() > 1) return;
    peaks.push_back(
        {kind, Bytes(std::llround(value(most))),
         of_rank ? stages[class_of_rank(strategy, *most.rank)].*bytes : largest(stages, bytes)});
  };
  add(MemoryKind::allocated, LogQuantity::peak_allocated, &StagePrediction::allocated);
  add(MemoryKind::reserved, LogQuantity::peak_reserved, &StagePrediction::reserved);
  return peaks;
}

/// Timers that sum to more than this, of the step, are of several steps. Each is the longest of all
/// ranks, and the longest phases are not of one rank.
constexpr double kMostOfStep = 1.1;

/// Returns the phases that the log's timers time, each once. One value may be of the first step.
std::vector<FitPartTime> timed_phases(OwnRun& own) {
  std::vector<FitPartTime> parts;
  double sum = 0;
  for (const LogTimer& timer : own.log.timers) {
    if (!timer.phase || timer.count < 2 || timer.median <= Seconds()) continue;
    const TimedPart part = *timer.phase == Phase::forward     ? TimedPart::forward
                           : *timer.phase == Phase::optimizer ? TimedPart::optimizer
                                                              : TimedPart::backward;
    if (std::ranges::find(parts, part, &FitPartTime::part) != parts.end()) continue;
    parts.push_back({part, std::log(timer.median.value())});
    sum += timer.median.value();
  }
  if (sum <= kMostOfStep * own.steady.median.value()) return parts;
  own.log.doubts.push_back(
      fmt::format("its timers sum to {}, more than a step: nothing is learned from them",
                  to_text(Seconds(sum))));
  return {};
}

/// Returns what a trace shows of the device. Its idle time is not that of other steps, since a
/// profiler makes the host slower.
std::vector<FitPartTime> traced_parts(const std::string& file) {
  const TrainingLog trace = read_training_log(file);
  const auto idle = trace.medians[std::size_t(LogQuantity::device_idle)];
  const auto exposed = trace.medians[std::size_t(LogQuantity::exposed_collectives)];
  if (!trace.steady || !idle || !exposed) {
    throw InputError(file, "",
                     "it has no steps with kernels, as the profiler records them "
                     "(ProfilerActivity.CUDA, profiler.step())");
  }
  const double computes = trace.steady->median.value() - *idle - *exposed;
  std::vector<FitPartTime> parts;
  if (computes > 0) parts.push_back({TimedPart::compute, std::log(computes)});
  if (*exposed > 0) parts.push_back({TimedPart::communication, std::log(*exposed)});
  return parts;
}

OwnRun read_run(const LearnQuestion& question, const std::string& script, const std::string& file,
                const std::optional<std::string>& trace) {
  TargetOptions options = question.target;
  OwnRun own{script, file, read_training_log(file), {}, {}, ""};
  options.from = script;
  // The prior is built in: nothing is learned from the same runs twice.
  if (options.calibration.empty() && !question.on_learned)
    options.calibration = {std::string(kBuiltInCalibration)};
  read_from(options);
  const LoadedTarget loaded = load_target(options, Bytes(0));
  const Target& target = loaded.target;
  check_same_run(own, target, *options.imported->strategy);
  own.steady = steady_of(own.log, target, file);
  const CostModel& costs = *target.costs;
  own.basis = loaded.source.words;
  const LearnedStep* last =
      question.on_learned ? last_run(target, *options.imported->strategy) : nullptr;
  if (last) own.ran_before = last->measured / last->after;
  if (!costs.cluster().efficiency && !costs.calibration()) {
    throw UsageError(
        "a run moves the numbers of a fit, rates typical of training, or a calibration of CPU "
        "cores; there is none of these");
  }
  PublishedTarget placed;
  placed.job = target.job;
  placed.cluster = costs.cluster();
  placed.device = placed.cluster.device;
  placed.framework = costs.framework();
  placed.measured = costs.calibration();
  placed.fitted = costs.fitted();
  placed.calibration = loaded.source.name;
  placed.devices = target.devices;
  placed.strategies = {
      legal_strategy(target.job, target.framework(), *options.imported->strategy, target.devices)};
  std::optional<FitRun> run = fit_run(std::move(placed), own.steady.median,
                                      trace ? traced_parts(*trace) : timed_phases(own));
  if (!run)
    throw InfeasibleError(fmt::format("{}: a step of this script cannot be predicted", script));
  own.run = std::move(*run);
  own.run.peaks = logged_peaks(own.log, target, own.run.target.strategies[0]);
  return own;
}

}  // namespace

std::vector<OwnRun> read_runs(const LearnQuestion& question) {
  if (question.scripts.size() != question.logs.size()) {
    throw UsageError(fmt::format("found {} --from and {} --log; each run has both",
                                 question.scripts.size(), question.logs.size()));
  }
  if (question.traces.size() > question.logs.size()) {
    throw UsageError(fmt::format("found {} --trace and {} --log; each --trace needs its --log",
                                 question.traces.size(), question.logs.size()));
  }
  for (auto log = question.logs.begin(); log != question.logs.end(); ++log) {
    if (std::find(question.logs.begin(), log, *log) != log)
      throw UsageError(fmt::format("found --log {} twice; a run counts once", *log));
  }
  std::vector<OwnRun> runs;
  for (std::size_t i = 0; i < question.scripts.size(); ++i) {
    runs.push_back(
        read_run(question, question.scripts[i], question.logs[i],
                 i < question.traces.size() ? std::optional(question.traces[i]) : std::nullopt));
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
