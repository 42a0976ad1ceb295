// Learning curves: how accurate predictions are after learning from a few runs of a source.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "fitting/source_spreads.h"
#include "predict/calibration_choice.h"
#include "published/published_run.h"

namespace plimsoll {

struct LearningRequest {
  std::vector<std::int64_t> counts;  ///< of runs that are learned from: 0, 1, 2, 3, 5, 10
  std::int64_t draws = 50;           ///< of each count of runs
  std::size_t most_runs = 40;        ///< of a group, evenly spread
  CalibrationChoice calibration;     ///< of predictions before anything is learned
};

/// Errors of the runs of a group that were not learned from, mean over draws.
struct LearningPoint {
  std::int64_t learned = 0;
  double error = 0;       ///< |predicted / measured - 1|
  double half_width = 0;  ///< of 90 % intervals, relative
  double held = 0;        ///< share of runs within their interval
  /// By how much the run that is predicted to be fastest is slower than the fastest: mean over jobs
  /// with kLeastLayouts runs or more, if there are any.
  std::optional<double> regret = {};
};

/// The runs of one document on one cluster, of frameworks with the same numbers.
struct LearningGroup {
  std::string document, cluster, framework;
  std::size_t runs = 0;
  std::vector<LearningPoint> points;  ///< of counts that leave kLeastLeftOut runs or more
};
inline constexpr std::size_t kLeastLeftOut = 5, kLeastLayouts = 3;

struct Learning {
  std::vector<LearningGroup> groups;
  SourceSpreads spreads;  ///< most likely for all groups
};

/// Learns about each group with the spreads of the other documents. Draws are the same on each
/// machine.
Learning learning_curves(std::span<const PublishedRun> runs, const LearningRequest& request);
/// Returns {"groups", "spreads"}.
Json learning_json(const Learning& learning);

/// Returns the spreads that are most likely for these sources, each of which counts once
/// (expectation maximisation: Dempster, Laird and Rubin 1977, Journal of the Royal Statistical
/// Society B 39). A parameter's own spread counts as kPriorSources sources more.
SourceSpreads most_likely_spreads(std::span<const SourceErrors> sources);
inline constexpr double kPriorSources = 2;

}  // namespace plimsoll
