// Learning moves the numbers that a prediction rests on towards the steps that a few runs of one's
// own took.
#pragma once

#include <Eigen/Dense>
#include <optional>
#include <string>
#include <vector>

#include "fitting/fit_model.h"
#include "fitting/source_spreads.h"

namespace plimsoll {

/// The numbers of a FitModel, as some runs determine them.
struct LearnedNumbers {
  LogModel::Values values;
  Eigen::MatrixXd covariance;  ///< of the logarithms of the values
  std::vector<double> alone;   ///< standard deviations if all other numbers were known
  double noise = 0;            ///< standard deviation of one run's logarithm
};

/// A LearnModel is a FitModel whose priors are the numbers that predictions rest on before anything
/// is learned, each with the spread of its value between published sources
/// (models/presets/spreads/learning.json, written by lab/learning).
class LearnModel {
 public:
  /// Needs at least one run. All runs have targets of one cluster and of frameworks with the same
  /// numbers, and are of fit_run().
  explicit LearnModel(std::vector<FitRun> runs);
  LearnModel(const LearnModel&) = delete;
  LearnModel& operator=(const LearnModel&) = delete;

  const FitModel& model() const { return model_; }
  const LogModel& log_model() const { return log_model_; }
  const LogModel::Values& before() const { return before_; }  ///< logarithms of predicted seconds

  /// Learns from the runs in use, of which there is at least one: robust steps (robust_fit.h) of
  /// numbers, with the spreads of sources as their prior.
  LearnedNumbers learn(const std::vector<bool>& use, const SearchLimits& limits) const;

  /// How a run differs from its prediction: the logarithm of measured over predicted seconds, and
  /// the standard deviation that was to be expected of it.
  struct Difference {
    double error = 0, deviation = 0;
  };
  /// Predicts each run by those in use. It takes no simulation.
  std::vector<Difference> differences(const std::vector<bool>& use) const;

  SourceErrors errors() const;  ///< of all runs, before anything is learned
  /// Sets what sources differ by, which is source_spreads() to begin with. The spreads of
  /// parameters are scaled alike, so that runs have the intervals that they had before.
  void set_spreads(SourceSpreads spreads);

 private:
  double scale_of_prior() const;

  FitModel model_;
  LogModel log_model_;
  SourceSpreads spreads_;
  LogModel::Values before_;
  Eigen::VectorXd errors_;
  Eigen::MatrixXd derivatives_;
};

struct LearnedRun {
  Seconds measured, before, after;
  /// The prediction by the other runs; absent if there is no other.
  std::optional<LearnModel::Difference> left_out;
  /// Whether the prediction before or by the other runs is kContradicts deviations away: the log
  /// may be of another script.
  bool unlikely = false;
  /// Whether at least two other runs contradict it (kContradicts). Nothing was learned from it.
  bool contradicts = false;
};

struct Learned {
  FittedCalibration fitted;
  std::vector<LearnedRun> runs;  ///< as given
  /// Relative half widths of the 90 % interval of steps like those of the runs, mean over them.
  double half_width = 0, half_width_before = 0;
};

/// A run contradicts others that predict it this many standard deviations away.
inline constexpr double kContradicts = 3;

/// Learns from runs of one's own. `basis` is the fit that predictions rest on before, if there is
/// one; its factors of layers are those of the runs' `layer_factor`. Of three runs or more, those
/// that the others contradict are left out, the worst first, as long as two remain.
Learned learn(std::vector<FitRun> runs, const std::optional<FittedCalibration>& basis);

}  // namespace plimsoll
