// Validate: published runs predicted, and how far off.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/published_run.h"
#include "plan/plan.h"
#include "planner/published_target.h"

namespace plimsoll {

inline constexpr std::size_t kMemoryKinds = 3;
/// Relative half width of the 90 % interval where nothing was fitted: docs/accuracy.md has what the
/// datasheet rates give for the runs that were fitted since.
inline constexpr double kUncalibratedHalfWidth = 0.45;

/// What a row was predicted to be.
struct RunPrediction {
  Seconds step_time;
  std::array<Bytes, kMemoryKinds> memory;  ///< by MemoryKind: of the rank that has most
  /// 90 % interval of the step time: that of runs left out of the calibration's fit; without
  /// one, kUncalibratedHalfWidth.
  double half_width = 0;
  bool fits = false;
  Strategy strategy;
  Breakdown breakdown;
};

struct ValidatedRun {
  PublishedRun run;
  std::string missing;  ///< why it was not predicted; empty: it was
  std::optional<RunPrediction> predicted;
};

/// Relative errors of one quantity over a family.
struct ErrorStatistics {
  std::size_t count = 0;
  double mean_signed = 0;  ///< (predicted - measured) / measured
  double mean_abs = 0, median_abs = 0, p90_abs = 0, max_abs = 0;
  std::optional<double> spearman;  ///< rank correlation; from three rows on
  /// Share of rows within their 90 % interval, and its mean relative half width; of step times.
  std::optional<double> interval90_coverage, interval90_half_width;
};

struct ValidatedFamily {
  std::string name;  ///< of its file, without .json
  std::vector<ValidatedRun> runs;
};

/// The fastest of the target's strategies that fits, else the fastest.
RunPrediction predict_published(const PublishedTarget& target);
/// Rows that cannot be predicted keep the reason.
ValidatedFamily validate(const std::string& name, std::span<const PublishedRun> runs);

/// (predicted, measured) of rows that ran: step times in seconds, or bytes of one kind.
using ErrorPairs = std::vector<std::pair<double, double>>;
ErrorPairs time_pairs(const ValidatedFamily& family);
ErrorPairs memory_pairs(const ValidatedFamily& family, MemoryKind kind);
std::optional<ErrorStatistics> statistics(const ErrorPairs& pairs);
/// Of step times, with their intervals.
std::optional<ErrorStatistics> time_statistics(const ValidatedFamily& family);

std::string validation_text(std::span<const ValidatedFamily> families);
std::string validation_json(std::span<const ValidatedFamily> families);

}  // namespace plimsoll
