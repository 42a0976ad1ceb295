// Validation predicts published runs and says how far off the predictions are.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "predict/expert_memory.h"
#include "predict/step_interval.h"
#include "published/published_run.h"
#include "published/published_target.h"

namespace plimsoll {

inline constexpr std::size_t kMemoryKinds = 3;

/// A RunPrediction is the prediction for a row.
struct RunPrediction {
  std::string cluster, framework;  ///< presets
  Job job;                         ///< with the vocabulary as the framework pads it
  std::string calibration;         ///< name of the built-in one, or "typical"; empty: none
  Seconds step_time;
  /// by MemoryKind, of the rank whose memory the row prints
  std::array<Bytes, kMemoryKinds> memory;
  std::array<double, kMemoryKinds> memory_half_width = {};  ///< memory_half_width()
  StepInterval interval;                                    ///< interval of the step time
  StepOpen open;              ///< what leaves the step open for people that the fit does not have
  bool source_known = false;  ///< whether the fit has runs of the same document
  std::vector<Unusual> unusual;  ///< with tight memory
  Fits fits = Fits::no;
  Strategy strategy;
  Breakdown breakdown;
};

struct ValidatedRun {
  PublishedRun run;
  std::string missing;  ///< reason why it was not predicted; empty: it was
  std::optional<RunPrediction> predicted;
};

/// The relative errors of one quantity over a family.
struct ErrorStatistics {
  std::size_t count = 0;
  double mean_signed = 0;  ///< (predicted - measured) / measured
  double mean_abs = 0, median_abs = 0, p90_abs = 0, max_abs = 0;
  std::optional<double> spearman;  ///< rank correlation; from three rows on
  /// The share of rows within their 90 % interval, and the mean relative half width of the
  /// interval.
  std::optional<double> interval90_coverage, interval90_half_width;
};

struct ValidatedFamily {
  std::string name;  ///< name of its file, without .json
  std::vector<ValidatedRun> runs;
};

/// Predicts a row by the fastest of the target's strategies that fits, or else by the fastest.
/// The interval is that of step_interval(): people whose document the fit has runs of count as the
/// same.
RunPrediction predict_published(const PublishedTarget& target);
/// Predicts all rows. Rows that cannot be predicted keep the reason. Several threads call
/// `after_each`, if it is given, each time that a row is done with.
ValidatedFamily validate(const std::string& name, std::span<const PublishedRun> runs,
                         const CalibrationChoice& calibration = {},
                         const std::function<void()>& after_each = {});

/// Pairs (predicted, measured) of rows that ran: step times in seconds, or bytes of one kind.
using ErrorPairs = std::vector<std::pair<double, double>>;
std::optional<ErrorStatistics> statistics(const ErrorPairs& pairs);
/// Returns the errors of step times, with their intervals.
std::optional<ErrorStatistics> time_statistics(const ValidatedFamily& family);
/// Returns the errors of one kind of memory, with their intervals.
std::optional<ErrorStatistics> memory_statistics(const ValidatedFamily& family, MemoryKind kind);
/// Returns the errors in one line, without the count.
std::string errors_text(const ErrorStatistics& statistics);

/// Returns the errors of each family, and what its rows were taken for: each row of families with
/// few rows, or of all of them if `each_row`. The regret of all families follows.
std::string validation_text(std::span<const ValidatedFamily> families, bool each_row = false);

}  // namespace plimsoll
