// Fit model: published runs as functions of what a fit may move.
#pragma once

#include <Eigen/Dense>
#include <span>
#include <string>
#include <vector>

#include "models/fitted_calibration.h"
#include "planner/evaluate.h"
#include "planner/published_target.h"

namespace plimsoll {

/// A run laid out once: what a fit moves changes durations only.
struct FitRun {
  PublishedTarget target;  ///< one strategy
  Footprint footprint;
  double measured = 0;    ///< logarithm of seconds
  std::string family;     ///< as PublishedRun says
  std::string layout;     ///< "GPT 24x1024 s1024 tp 1 pp 2 dp 4"
  std::size_t layer = 0;  ///< index of its LayerShape
};

/// Of the runs with a step time that are on that cluster and framework, at most so many, evenly
/// spread. `sources` gets theirs, each once.
std::vector<FitRun> fit_runs(std::span<const PublishedRun> published, const std::string& cluster,
                             const std::string& framework, std::size_t most,
                             std::vector<std::string>& sources);

/// A point that a fit is at: parameters, and logarithms of layer factors.
struct FitPoint {
  std::vector<double> values;  ///< in the order of FitModel::parameters
  std::vector<double> layers;  ///< in the order of FitModel::shapes
};

class FitModel {
 public:
  /// At least one run. Without `layers` all factors stay 1.
  FitModel(std::vector<FitRun> runs, bool layers);

  const std::vector<FitRun>& runs() const { return runs_; }
  const std::vector<FitParameter>& parameters() const { return parameters_; }
  const std::vector<LayerShape>& shapes() const { return shapes_; }  ///< ascending
  const FitPoint& priors() const { return priors_; }
  std::ptrdiff_t unknowns() const { return std::ptrdiff_t(parameters_.size() + shapes_.size()); }
  /// Inverse of the unknowns' covariance before any run was seen; of logarithms, parameters first.
  const Eigen::MatrixXd& prior_precision() const { return precision_; }

  /// Logarithms of predicted step times.
  Eigen::VectorXd at(const FitPoint& point) const;
  /// Their derivatives by the unknowns' logarithms; `here` = at(point).
  Eigen::MatrixXd derivatives(const FitPoint& point, const Eigen::VectorXd& here) const;

 private:
  double predicted(const FitRun& run, const FitPoint& point) const;

  std::vector<FitRun> runs_;
  std::vector<FitParameter> parameters_;
  std::vector<LayerShape> shapes_;
  FitPoint priors_;
  Eigen::MatrixXd precision_;
};

}  // namespace plimsoll
