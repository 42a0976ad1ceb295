// Validate: published runs predicted, and how far off.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "predict/step_interval.h"
#include "published/published_run.h"
#include "published/published_target.h"

namespace plimsoll {

inline constexpr std::size_t kMemoryKinds = 3;

/// The prediction for a row.
struct RunPrediction {
  std::string cluster, framework;  ///< presets
  std::string calibration;         ///< name of the built-in one, or "typical"; empty: none
  Seconds step_time;
  std::array<Bytes, kMemoryKinds> memory;  ///< by MemoryKind: of the rank that the row prints
  std::array<double, kMemoryKinds> memory_half_width = {};  ///< memory_half_width()
  StepInterval interval;                                    ///< of the step time
  TimeBasis basis = TimeBasis::kernels;
  bool source_known = false;  ///< PublishedTarget::source_known
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
  /// Share of rows within their 90 % interval, and its mean relative half width.
  std::optional<double> interval90_coverage, interval90_half_width;
};

struct ValidatedFamily {
  std::string name;  ///< of its file, without .json
  std::vector<ValidatedRun> runs;
};

/// The interval of a run of a document that its fit has runs of is what the fit leaves open; of
/// others that of every plan. In both, what was measured on the machine itself is open by itself.
/// The fastest of the target's strategies that fits, else the fastest.
RunPrediction predict_published(const PublishedTarget& target);
/// Rows that cannot be predicted keep the reason.
ValidatedFamily validate(const std::string& name, std::span<const PublishedRun> runs,
                         const CalibrationChoice& calibration = {});

/// (predicted, measured) of rows that ran: step times in seconds, or bytes of one kind.
using ErrorPairs = std::vector<std::pair<double, double>>;
ErrorPairs time_pairs(const ValidatedFamily& family);
std::optional<ErrorStatistics> statistics(const ErrorPairs& pairs);
/// Errors of step times, with their intervals.
std::optional<ErrorStatistics> time_statistics(const ValidatedFamily& family);
/// Errors of one kind of memory, with their intervals.
std::optional<ErrorStatistics> memory_statistics(const ValidatedFamily& family, MemoryKind kind);
/// In one line, without the count.
std::string errors_text(const ErrorStatistics& statistics);

std::string validation_text(std::span<const ValidatedFamily> families);

}  // namespace plimsoll
