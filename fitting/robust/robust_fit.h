// Robust fit: positive numbers found from measurements, with priors. The one fitter of
// `planner fit`, `planner compare --refit` and `planner-calibrate`.
#pragma once

#include <Eigen/Dense>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/calibration/fitted_calibration.h"

namespace plimsoll {

/// A number to be found. Its prior is a further measurement of its logarithm.
struct FitNumber {
  std::string name;
  double prior = 1, spread = 0;  ///< spread: standard deviation of the logarithm
  double least = 0, most = 0;
  /// Stays at its prior where the measurements narrow the spread by less than a tenth. Others take
  /// what their neighbours in `precision` say.
  bool named = true;
};

/// Measurements as a function of the numbers; all in logarithms.
struct LogModel {
  using Values = std::vector<double>;

  std::vector<FitNumber> numbers;
  Values measured;
  /// By measurement. Not finite: these values cannot be predicted with, and no step goes there. The
  /// priors can.
  std::function<Values(const Values& values)> predicted;
  /// By the logarithms of the numbers, a row for each measurement; `here` = predicted(values).
  /// Empty: differences of predictions close to each other.
  std::function<Eigen::MatrixXd(const Values& values, const Values& here)> derivatives;
  /// Inverse of the covariance of the numbers' logarithms before anything was measured. Absent:
  /// each has its spread.
  std::optional<Eigen::MatrixXd> precision;
  /// Measurements of a group have one standard deviation, estimated from their residuals if they
  /// are kLeastOfGroup or more, else from all. Empty: one group.
  std::vector<std::size_t> groups;
  /// Standard deviation of what the numbers leave open of a measurement beside that. Empty:
  /// nothing.
  std::vector<double> open;
  double least_scale = 0, most_scale = 0;  ///< bounds of a group's standard deviation

  Values priors() const;
};

inline constexpr std::size_t kLeastOfGroup = 20;

/// How long a solution is looked for. Derivatives cost as many predictions as there are numbers, so
/// steps go on with old ones while each is at most half as long as the one before.
struct SearchLimits {
  int most_derivations = 6;
  int most_steps = 4;  ///< with the same derivatives
  /// Derivatives at a point nearby, to begin with. A solution that is steady with these is taken,
  /// as in the folds of a cross-validation. Else the end is where fresh ones ask for no further
  /// step.
  const Eigen::MatrixXd* known = nullptr;
};

struct RobustSolution {
  LogModel::Values values;
  std::vector<double> deviations;  ///< standard deviations of their logarithms
  std::vector<double> alone;       ///< the same, were all other numbers known
  std::vector<bool> fixed;         ///< stays at its prior
  std::vector<double> scales;      ///< by group: standard deviation of a measurement's logarithm
  Eigen::MatrixXd derivatives;     ///< of the last step
  double loss = 0;                 ///< what was made least, at the start of the last step
  bool converged = false;
};

/// Least squares, robust against measurements that lie far off (Huber 1964, Annals of Mathematical
/// Statistics 35: linear beyond 1.5 standard deviations, which are taken from the median).
/// Gauss-Newton from `start` within the numbers' bounds, damped until a step improves (Levenberg
/// 1944, Marquardt 1963): Nocedal and Wright, Numerical Optimization, 2006, sections 10.3 and 16.7.
/// Deviations are those of the linearised problem. Only measurements in `use` count; numbers in
/// `fixed` stay.
RobustSolution solve(const LogModel& model, const std::vector<bool>& use,
                     const std::vector<bool>& fixed, LogModel::Values start,
                     const SearchLimits& limits);

/// All numbers first; then named ones that the measurements narrow by less than a tenth of the
/// prior's spread stay at their priors, and the others are solved for again.
RobustSolution solve_determined(const LogModel& model, const std::vector<bool>& use,
                                LogModel::Values start, const SearchLimits& limits);

/// Returns the first `count` numbers with 90 % intervals, which end at the numbers' bounds.
std::vector<FittedValue> fitted_values(const LogModel& model, const RobustSolution& solution,
                                       std::size_t count);

}  // namespace plimsoll
