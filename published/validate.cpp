// Published runs are predicted, and the errors of families computed.
#include "published/validate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/parallel.h"
#include "plan/memory_interval.h"
#include "predict/evaluate.h"

namespace plimsoll {
namespace {

std::optional<Bytes> measured_memory(const PublishedRun& run, MemoryKind kind) {
  switch (kind) {
    case MemoryKind::allocated:
      return run.memory_allocated;
    case MemoryKind::reserved:
      return run.memory_reserved;
    case MemoryKind::device:
      return run.memory_device;
  }
  return std::nullopt;
}

/// Returns the memory of the stage that takes most, for each kind, or of the last stage where the
/// row measured that one.
PredictedMemory memory_of(std::span<const StagePrediction> stages, bool of_last) {
  if (of_last) stages = stages.last(1);
  PredictedMemory memory;
  for (const StagePrediction& stage : stages) {
    const Bytes reserved = std::max(memory.reserved, stage.reserved);
    if (stage.allocated >= memory.allocated) memory = plimsoll::memory_of(stage);
    memory.reserved = reserved;
  }
  return memory;
}

RunPrediction prediction_of(const PublishedTarget& run, const Target& target,
                            const Strategy& strategy) {
  const Footprint footprint = lay_out(target, strategy, Proof::structure);
  const Evaluation evaluation =
      predict(target, strategy, footprint, Folding::folded, Detail::critical);
  const Prediction& prediction = evaluation.prediction;
  RunPrediction predicted;
  predicted.cluster = run.cluster.name;
  predicted.framework = run.framework.name;
  predicted.job = run.job;
  predicted.calibration = run.calibration;
  predicted.step_time = evaluation.prediction.step_time;
  predicted.fits = fits_answer(target, strategy, footprint.stages).fits;
  predicted.interval = {prediction.step_time_low / prediction.step_time,
                        prediction.step_time_high / prediction.step_time};
  predicted.open = evaluation.open;
  predicted.source_known = run.fitted && run.fitted->of_same_people;
  predicted.unusual = unusual_choices(
      run.job, strategy, {run.cluster.devices_per_node, target.costs->device_kinds() > 1});
  if (prediction.memory.verdict == MemoryVerdict::tight)
    predicted.unusual.push_back(tight_memory(prediction.memory.overflow));
  predicted.strategy = strategy;
  predicted.breakdown = evaluation.prediction.breakdown;
  PredictedMemory memory = memory_of(footprint.stages, run.memory_of_last_rank);
  memory.outside = outside_program(target, strategy);
  predicted.memory[std::size_t(MemoryKind::allocated)] = memory.allocated;
  predicted.memory[std::size_t(MemoryKind::reserved)] = memory.reserved;
  predicted.memory[std::size_t(MemoryKind::device)] = memory.reserved + memory.outside;
  for (const MemoryKind kind : {MemoryKind::allocated, MemoryKind::reserved, MemoryKind::device}) {
    predicted.memory_half_width[std::size_t(kind)] = memory_half_width(kind, run.framework, memory);
  }
  return predicted;
}

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (std::size_t j = i; j < end; ++j) ranks[order[j]] = double(i + end - 1) / 2;
    i = end;
  }
  return ranks;
}

std::optional<double> spearman_of(const ErrorPairs& pairs) {
  if (pairs.size() < 3) return std::nullopt;
  std::vector<double> predicted, measured;
  for (const auto& [p, m] : pairs) predicted.push_back(p), measured.push_back(m);
  const std::vector<double> a = ranks_of(predicted), b = ranks_of(measured);
  const double mean = double(pairs.size() - 1) / 2;
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean) * (b[i] - mean);
    aa += (a[i] - mean) * (a[i] - mean);
    bb += (b[i] - mean) * (b[i] - mean);
  }
  if (aa == 0 || bb == 0) return std::nullopt;
  return ab / std::sqrt(aa * bb);
}

/// A step time that was predicted and measured.
bool has_time(const ValidatedRun& run) { return run.predicted && run.run.has_step_time(); }

/// Predicted and measured values with the half widths of what was predicted.
struct Intervals {
  ErrorPairs pairs;
  double within = 0, width = 0;

  void add(double predicted, double measured, const StepInterval& interval) {
    pairs.emplace_back(predicted, measured);
    // Relative to the prediction, which is all that a user has.
    within += interval.holds(measured / predicted) ? 1 : 0;
    width += interval.half_width();
  }
  std::optional<ErrorStatistics> statistics() const {
    std::optional<ErrorStatistics> result = plimsoll::statistics(pairs);
    if (!result) return result;
    result->interval90_coverage = within / double(pairs.size());
    result->interval90_half_width = width / double(pairs.size());
    return result;
  }
};

/// A quantile of ascending values, between neighbours.
double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * double(sorted.size() - 1);
  const auto below = std::size_t(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - double(below));
}

ValidatedRun validate_run(const PublishedRun& run, const CalibrationChoice& calibration) {
  ValidatedRun validated;
  validated.run = run;
  const PublishedTarget target = published_target(run, calibration);
  validated.missing = target.missing;
  if (!target.missing.empty()) return validated;
  try {
    validated.predicted = predict_published(target);
  } catch (const InfeasibleError& error) {
    validated.missing = error.what();
  } catch (const InputError& error) {
    validated.missing = error.what();
  }
  return validated;
}

}  // namespace

RunPrediction predict_published(const PublishedTarget& target) {
  const Target prediction_target = target.target();
  std::optional<RunPrediction> best;
  for (const Strategy& strategy : target.strategies) {
    const RunPrediction next = prediction_of(target, prediction_target, strategy);
    const bool better = !best || next.fits < best->fits ||
                        (next.fits == best->fits && next.step_time < best->step_time);
    if (better) best = next;
  }
  INVARIANT(best.has_value(), "a target has at least one strategy");
  return *best;
}

ValidatedFamily validate(const std::string& name, std::span<const PublishedRun> runs,
                         const CalibrationChoice& calibration,
                         const std::function<void()>& after_each) {
  ValidatedFamily family;
  family.name = name;
  family.runs.resize(runs.size());
  for_each_index(runs.size(), 0, [&](std::size_t i) {
    family.runs[i] = validate_run(runs[i], calibration);
    if (after_each) after_each();
  });
  return family;
}

std::optional<ErrorStatistics> time_statistics(const ValidatedFamily& family) {
  Intervals intervals;
  for (const ValidatedRun& run : family.runs) {
    if (!has_time(run)) continue;
    intervals.add(run.predicted->step_time.value(), run.run.step_time->value(),
                  run.predicted->interval);
  }
  return intervals.statistics();
}

std::optional<ErrorStatistics> memory_statistics(const ValidatedFamily& family, MemoryKind kind) {
  Intervals intervals;
  for (const ValidatedRun& run : family.runs) {
    const auto measured = measured_memory(run.run, kind);
    if (!run.predicted || !measured || run.run.out_of_memory) continue;
    const double half = run.predicted->memory_half_width[std::size_t(kind)];
    intervals.add(double(run.predicted->memory[std::size_t(kind)].count()),
                  double(measured->count()), {1 - half, 1 + half});
  }
  return intervals.statistics();
}

std::optional<ErrorStatistics> statistics(const ErrorPairs& pairs) {
  if (pairs.empty()) return std::nullopt;
  ErrorStatistics result;
  result.count = pairs.size();
  std::vector<double> errors;
  for (const auto& [predicted, measured] : pairs) {
    const double error = (predicted - measured) / measured;
    result.mean_signed += error / double(pairs.size());
    errors.push_back(std::abs(error));
    result.mean_abs += errors.back() / double(pairs.size());
  }
  std::sort(errors.begin(), errors.end());
  result.median_abs = quantile(errors, 0.5);
  result.p90_abs = quantile(errors, 0.9);
  result.max_abs = errors.back();
  result.spearman = spearman_of(pairs);
  return result;
}

}  // namespace plimsoll
