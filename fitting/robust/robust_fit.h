// The robust fit finds positive numbers from measurements, with priors. `planner fit`, `planner
// compare --refit` and `planner-calibrate` all use it.
#pragma once

#include <Eigen/Dense>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/calibration/fitted_calibration.h"

namespace plimsoll {

/// A FitNumber is a number to be found. Its prior is a further measurement of its logarithm.
struct FitNumber {
  std::string name;
  double prior = 1, spread = 0;  ///< spread: standard deviation of the logarithm
  double least = 0, most = 0;
  /// A named number stays at its prior where the measurements narrow its spread by less than a
  /// tenth. Other numbers follow their neighbours in `precision`.
  bool named = true;
  /// The measurements that show the number apart from others; empty: all do. It stays at its prior
  /// if none of those that count shows it.
  std::vector<bool> shown_by = {};
};

/// A LogModel gives measurements as a function of the numbers. Both are logarithms.
struct LogModel {
  using Values = std::vector<double>;

  std::vector<FitNumber> numbers;
  Values measured;
  /// Returns the predictions, by measurement. They are not finite where nothing can be predicted
  /// with these values, and no step goes there. The priors can always be used.
  std::function<Values(const Values& values)> predicted;
  /// Returns the derivatives by the logarithms of the numbers, with a row for each measurement;
  /// `here` is predicted(values). Empty: derivatives are differences of nearby predictions.
  std::function<Eigen::MatrixXd(const Values& values, const Values& here)> derivatives;
  /// The inverse of the covariance of the numbers' logarithms before any measurement. Absent: the
  /// numbers are independent, each with its spread.
  std::optional<Eigen::MatrixXd> precision;
  /// The group of each measurement. Measurements of a group have one standard deviation, which is
  /// estimated from their residuals if there are kLeastOfGroup or more, else from all residuals.
  /// Empty: one group.
  std::vector<std::size_t> groups;
  /// For each measurement, the standard deviation of what the numbers cannot explain, beside that
  /// of its group. Empty: none.
  std::vector<double> open;
  double least_scale = 0, most_scale = 0;  ///< bounds of a group's standard deviation

  Values priors() const;
};

inline constexpr std::size_t kLeastOfGroup = 20;

/// SearchLimits say how long a solution is searched for. Derivatives cost as many predictions as
/// there are numbers, so steps go on with old derivatives while each step is at most half as long
/// as the one before.
struct SearchLimits {
  int most_derivations = 6;
  int most_steps = 4;  ///< with the same derivatives
  /// Derivatives at a nearby point to begin with. A solution that is steady with these is accepted,
  /// as in the folds of a cross-validation. Without them, the search ends where fresh derivatives
  /// ask for no further step.
  const Eigen::MatrixXd* known = nullptr;
};

struct RobustSolution {
  LogModel::Values values;
  std::vector<double> deviations;  ///< standard deviations of their logarithms
  std::vector<double> alone;       ///< standard deviations if all other numbers were known
  std::vector<bool> fixed;         ///< whether the number stays at its prior
  std::vector<double> scales;      ///< by group: standard deviation of a measurement's logarithm
  Eigen::MatrixXd derivatives;     ///< of the last step
  double loss = 0;                 ///< the minimised sum, at the start of the last step
  bool converged = false;
};

/// Solves by least squares that are robust against outliers (Huber 1964, Annals of Mathematical
/// Statistics 35: linear beyond 1.5 standard deviations, which are taken from the median). It takes
/// Gauss-Newton steps from `start` within the numbers' bounds, damped until a step improves
/// (Levenberg 1944, Marquardt 1963; Nocedal and Wright, Numerical Optimization, 2006, sections 10.3
/// and 16.7). Deviations are those of the linearised problem. Only measurements in `use` count, and
/// numbers in `fixed` stay.
RobustSolution solve(const LogModel& model, const std::vector<bool>& use,
                     const std::vector<bool>& fixed, LogModel::Values start,
                     const SearchLimits& limits);

/// Solves for all numbers that are shown first. Named numbers that the measurements narrow by less
/// than a tenth of the prior's spread then stay at their priors, and the others are solved for
/// again.
RobustSolution solve_determined(const LogModel& model, const std::vector<bool>& use,
                                LogModel::Values start, const SearchLimits& limits);

/// Returns the first `count` numbers with 90 % intervals, which end at the numbers' bounds.
std::vector<FittedValue> fitted_values(const LogModel& model, const RobustSolution& solution,
                                       std::size_t count);

}  // namespace plimsoll
