// Fit model: published runs as functions of what a fit may move.
#pragma once

#include <Eigen/Dense>
#include <span>
#include <string>
#include <vector>

#include "fitting/robust/robust_fit.h"
#include "models/calibration/fitted_calibration.h"
#include "predict/evaluate.h"
#include "published/published_target.h"

namespace plimsoll {

/// A run laid out once: what a fit moves changes durations only.
struct FitRun {
  PublishedTarget target;  ///< one strategy
  Footprint footprint;
  double measured = 0;        ///< logarithm of seconds
  std::string family;         ///< as PublishedRun says
  std::string layout;         ///< "GPT 24x1024 s1024 tp 1 pp 2 dp 4"
  std::string size;           ///< "24x1024": layers and hidden size
  bool across_nodes = false;  ///< its ranks are on several
  /// Whether layers are repeated is not stated, and either way can be predicted.
  bool unstated_recompute = false;
  /// How its layers' factor follows from those of FitModel::shapes, and what that leaves open.
  LayerShape shape;
  Eigen::VectorXd layers;
  double layer_deviation = 0;
};

/// Which runs a fit is of.
struct FitSelection {
  std::string cluster, framework;  ///< names
  /// The most runs within a node, and the most across nodes, that are taken, evenly spread.
  std::size_t most_runs = 0;
};

/// Laid out on the assumption; runs that cannot be predicted are left out. `sources` gets theirs,
/// each once.
std::vector<FitRun> fit_runs(std::span<const PublishedRun> published, const FitSelection& selection,
                             const AssumedRecompute& assumed, std::vector<std::string>& sources);

class FitModel {
 public:
  /// At least one run. With `layers` shapes of kLeastRunsOfShape or more runs of
  /// kLeastLayoutsOfShape or more layouts have a factor of their own; others what their neighbours
  /// say.
  FitModel(std::vector<FitRun> runs, bool layers);

  const std::vector<FitRun>& runs() const { return runs_; }
  const std::vector<FitParameter>& parameters() const { return parameters_; }
  const std::vector<LayerShape>& shapes() const { return shapes_; }  ///< ascending
  /// Step times; numbers are the parameters, then factors by shape. Runs within a node and across
  /// nodes are groups 0 and 1. Refers to this model.
  LogModel log_model() const;

 private:
  double predicted(const FitRun& run, const LogModel::Values& values) const;
  LogModel::Values predicted(const LogModel::Values& values) const;
  Eigen::MatrixXd derivatives(const LogModel::Values& values, const LogModel::Values& here) const;

  std::vector<FitRun> runs_;
  std::vector<FitParameter> parameters_;
  std::vector<LayerShape> shapes_;
};

/// Fewer would be noise of these runs, or what else is special about their layout.
inline constexpr std::size_t kLeastRunsOfShape = 3, kLeastLayoutsOfShape = 2;

}  // namespace plimsoll
