// Fit solve: the point that runs and priors together make likeliest.
#pragma once

#include <Eigen/Dense>
#include <vector>

#include "planner/fit_model.h"

namespace plimsoll {

struct Solution {
  FitPoint point;
  std::vector<bool> fixed;      ///< by parameter: the runs did not narrow it, so it stays
  Eigen::MatrixXd covariance;   ///< of the unknowns' logarithms
  Eigen::MatrixXd derivatives;  ///< of the last step
  double scale = 0;             ///< standard deviation of one run's logarithm
};
/// Standard deviation of an unknown's logarithm.
double deviation(const Solution& solution, std::size_t unknown);

/// Gauss-Newton from the priors over the runs in use, runs that lie far off counting less: all
/// unknowns first; then parameters that the runs narrowed by less than a tenth stay at their priors
/// and the others are solved for again.
Solution solve_determined(const FitModel& model, const std::vector<bool>& use, int most_steps);
/// The same from a solution nearby and with its derivatives: where that ends does not depend on
/// where it began.
Solution solve_again(const FitModel& model, const std::vector<bool>& use, const Solution& nearby);

}  // namespace plimsoll
