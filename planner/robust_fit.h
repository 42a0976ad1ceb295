// Robust fit: positive numbers found from measurements, with priors. The engine of `planner compare
// --refit`; `planner fit` has layer factors beside, and an engine of its own (fit_solve.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/fitted_calibration.h"

namespace plimsoll {

/// A number to be found. Its prior is a further measurement of its logarithm.
struct FitNumber {
  std::string name;
  double prior = 1, spread = 0;  ///< spread: standard deviation of the logarithm
  double least = 0, most = 0;
};

/// Measurements as a function of the numbers; all in logarithms.
struct LogModel {
  std::vector<FitNumber> numbers;
  std::vector<double> measured;
  std::function<std::vector<double>(const std::vector<double>& values)> predicted;
  /// Bounds of one measurement's standard deviation, which is estimated from the residuals.
  double least_scale = 0, most_scale = 0;

  std::vector<double> priors() const;
};

struct RobustSolution {
  std::vector<double> values;
  std::vector<double> deviations;  ///< standard deviations of their logarithms
};

/// Least squares, robust against measurements that lie far off (Huber 1964, Annals of Mathematical
/// Statistics 35: linear beyond 1.5 standard deviations, which are taken from the median).
/// Gauss-Newton from `start`: Nocedal and Wright, Numerical Optimization, 2006, section 10.3.
/// Deviations are those of the linearised problem. Only measurements in `use` count; numbers in
/// `fixed` stay.
RobustSolution solve(const LogModel& model, const std::vector<bool>& use,
                     const std::vector<bool>& fixed, std::vector<double> start, int iterations);

/// All numbers first; then those that the measurements narrow by less than a tenth of the prior's
/// spread stay at their priors, `fixed` says which, and the others are solved for again.
RobustSolution solve_determined(const LogModel& model, const std::vector<bool>& use, int iterations,
                                std::vector<bool>& fixed);

/// With 90 % intervals.
std::vector<FittedValue> fitted_values(const LogModel& model, const RobustSolution& solution,
                                       const std::vector<bool>& fixed);

}  // namespace plimsoll
