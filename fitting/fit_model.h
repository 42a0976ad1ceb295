// A FitModel expresses published runs as functions of the numbers that a fit may change.
#pragma once

#include <Eigen/Dense>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fitting/learned_memory.h"
#include "fitting/robust/robust_fit.h"
#include "models/calibration/fitted_calibration.h"
#include "predict/breakdown.h"
#include "predict/evaluate.h"
#include "published/published_target.h"

namespace plimsoll {

/// A part of a run's step that its log or its trace times.
struct FitPartTime {
  TimedPart part;
  double measured = 0;  ///< logarithm of seconds
};

/// A FitRun is a run that is lowered once, since the numbers of a fit change durations only.
struct FitRun {
  PublishedTarget target;  ///< one strategy
  Footprint footprint;
  double measured = 0;  ///< logarithm of seconds
  std::vector<FitPartTime> parts = {};
  std::vector<LoggedPeak> peaks = {};
  std::string family;         ///< as PublishedRun says
  std::string document;       ///< document_of() its source
  std::string layout;         ///< "GPT 24x1024 s1024 tp 1 pp 2 dp 4"
  std::string size;           ///< "24x1024": layers and hidden size
  bool across_nodes = false;  ///< whether its ranks are on several nodes
  /// Whether the source does not say if layers are recomputed, and both cases can be predicted.
  bool unstated_recompute = false;
  /// The weights by which its layers' factor follows from the factors of FitModel::shapes, and the
  /// standard deviation that remains.
  LayerShape shape;
  Eigen::VectorXd layers;
  double layer_deviation = 0;
  /// The factor that its layers have before anything is fitted: that of an earlier fit.
  double layer_factor = 1;
  double half_width = 0;  ///< logarithm; of the 90 % interval of its step before
};

/// Which shapes of layers have a factor: none, those of kLeastRunsOfShape runs and
/// kLeastLayoutsOfShape layouts, or all.
enum class LayerShapes : std::uint8_t { none, repeated, all };

/// Lowers a run of a target with the numbers that predictions rest on. Returns nothing if it cannot
/// be lowered. Parts that are predicted to take less than kLeastShare of the step are left out.
std::optional<FitRun> fit_run(PublishedTarget target, Seconds measured,
                              std::vector<FitPartTime> parts = {});

/// A smaller part of a step is within the error of timers.
inline constexpr double kLeastShare = 0.01;

/// A FitSelection says which runs a fit uses.
struct FitSelection {
  std::string cluster, framework;  ///< names
  /// The most runs within a node, and the most across nodes, that are taken, evenly spread.
  std::size_t most_runs = 0;
};

/// Lowers the selected runs under the assumption. Runs that cannot be predicted are left out.
/// `sources` gets the sources of the runs, each once.
std::vector<FitRun> fit_runs(std::span<const PublishedRun> published, const FitSelection& selection,
                             const AssumedRecompute& assumed, std::vector<std::string>& sources);

class FitModel {
 public:
  /// Needs at least one run. The factors of shapes that have none of `layers` follow from those of
  /// their neighbours.
  FitModel(std::vector<FitRun> runs, LayerShapes layers);

  const std::vector<FitRun>& runs() const { return runs_; }
  const std::vector<FitParameter>& parameters() const { return parameters_; }
  const std::vector<LayerShape>& shapes() const { return shapes_; }  ///< ascending
  /// Returns step times as a function of numbers: the parameters, then the factors by shape. Times
  /// of the runs' parts follow the steps of all runs. Runs within a node and across nodes are
  /// groups 0 and 1. The result refers to this model. With `only`, the steps of other runs are not
  /// simulated, and are predicted as they were measured.
  LogModel log_model(std::vector<bool> only = {}) const;
  /// Returns the index of a run's first part among the measurements.
  std::size_t first_part(std::size_t run) const { return first_parts_[run]; }

 private:
  /// Returns the logarithms of the step and of its parts.
  LogModel::Values predicted(const FitRun& run, const LogModel::Values& values) const;
  LogModel::Values predicted(const LogModel::Values& values, const std::vector<bool>& only) const;
  Eigen::MatrixXd derivatives(const LogModel::Values& values, const LogModel::Values& here,
                              const std::vector<bool>& only) const;

  std::vector<FitRun> runs_;
  LogModel::Values measured_;  ///< steps of the runs, then their parts
  std::vector<std::size_t> first_parts_;
  std::vector<FitParameter> parameters_;
  std::vector<LayerShape> shapes_;
};

/// With fewer runs a factor would express the noise of these runs, or other effects of their
/// layout.
inline constexpr std::size_t kLeastRunsOfShape = 3, kLeastLayoutsOfShape = 2;

}  // namespace plimsoll
