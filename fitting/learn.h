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

/// An ErrorPart is the part of a run's error, a logarithm, that numbers of one kind account for:
/// products, attention, memory-bound ops, overlap, a network level, the host, layers by shape.
struct ErrorPart {
  std::string name;
  double change = 0;     ///< by which the step is longer than before, since these numbers moved
  double deviation = 0;  ///< of the change; the changes of parts of a run are not independent
  /// How many times as long everything that these numbers price takes, if nothing else accounts
  /// for the error. Its share of the step is the sum of derivatives. Absent: no time explains it.
  std::optional<double> alone = {};
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

  /// Takes the error of each run apart, by derivatives at the numbers before. The largest part
  /// comes first; the noise of the run is no part.
  std::vector<std::vector<ErrorPart>> error_parts(const LearnedNumbers& numbers) const;

  SourceErrors errors() const;  ///< of all runs, before anything is learned
  /// Sets what sources differ by, which is source_spreads() to begin with. The spreads of
  /// parameters are scaled alike, so that runs have the intervals that they had before.
  void set_spreads(SourceSpreads spreads);

 private:
  Eigen::Index scaled_numbers() const;
  double scale_of_prior() const;
  std::vector<bool> measurements_of(const std::vector<bool>& use) const;
  Posterior posterior_of(const std::vector<bool>& use, const Eigen::MatrixXd& derivatives,
                         const Eigen::VectorXd& errors) const;

  FitModel model_;
  LogModel log_model_;
  SourceSpreads spreads_;
  LogModel::Values before_;
  Eigen::VectorXd errors_;
  Eigen::MatrixXd derivatives_;
  Eigen::MatrixXd independent_;
};

/// A part of a run's step that its log or its trace times.
struct LearnedPart {
  TimedPart part;
  Seconds measured, before, after;
};

struct LearnedRun {
  Seconds measured, before, after;
  std::vector<LearnedPart> parts = {};
  /// The prediction by the other runs; absent if there is no other.
  std::optional<LearnModel::Difference> left_out = {};
  /// Whether the prediction before or by the other runs is kContradicts deviations away: the log
  /// may be of another script.
  bool unlikely = false;
  /// Whether at least two other runs contradict it (kContradicts). Nothing was learned from it.
  bool contradicts = false;
  std::vector<ErrorPart> error_parts = {};  ///< of its error before
  bool peak_contradicts = false;            ///< LearnedPeaks::contradicts
};

struct Learned {
  FittedCalibration fitted;
  std::vector<LearnedRun> runs;  ///< as given
  /// Relative half widths of the 90 % interval of steps like those of the runs, mean over them.
  double half_width = 0, half_width_before = 0;
};

/// Learns from runs of one's own. `basis` is the fit that predictions rest on before, if there is
/// one; its factors of layers are those of the runs' `layer_factor`. Of three runs or more, those
/// that the others contradict are left out, the worst first, as long as two remain.
Learned learn(std::vector<FitRun> runs, const std::optional<FittedCalibration>& basis);

}  // namespace plimsoll
