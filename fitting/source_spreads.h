// Source spreads: by how much published sources differ in the numbers that predictions rest on.
// They are the prior of what is learned from runs of one's own.
#pragma once

#include <Eigen/Dense>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "models/calibration/fit_parameters.h"

namespace plimsoll {

/// Standard deviations of logarithms.
struct SourceSpreads {
  double noise = 0;         ///< of one run whose numbers are known, median over sources
  double noise_spread = 0;  ///< of that noise
  /// By parameter; those of levels by "inner" or "outer" and the number's name.
  std::map<std::string, double, std::less<>> values;

  /// Returns the spread of a parameter, or its own where no source tells.
  double of(const FitParameter& parameter) const;
};

/// Returns the name under which a parameter's spread is known.
std::string spread_name(const FitParameter& parameter);

/// Returns the numbers of models/presets/spreads/learning.json.
const SourceSpreads& source_spreads();

/// A run contradicts others that predict it this many standard deviations away.
inline constexpr double kContradicts = 3;

/// Returns the runs of those in use that the others do not contradict. Of three or more, the worst
/// leave first, as long as two remain. `off(others, run)` returns by how many deviations a run is
/// off what others predict.
std::vector<bool> trusted_runs(
    std::vector<bool> use,
    const std::function<double(const std::vector<bool>& others, std::size_t run)>& off);

/// The errors of a source's runs, as logarithms of measured over predicted seconds.
struct SourceErrors {
  std::vector<FitParameter> parameters;
  Eigen::MatrixXd precision;    ///< of all numbers before: the parameters, then others
  Eigen::MatrixXd derivatives;  ///< of the runs' predicted logarithms, by those of the numbers
  Eigen::VectorXd errors;
};

/// Returns the precision of numbers with the spreads of the parameters, which come first.
Eigen::MatrixXd with_spreads(std::span<const FitParameter> parameters, Eigen::MatrixXd precision,
                             const SourceSpreads& spreads);

/// The numbers of a linear problem, as errors determine them.
struct Posterior {
  Eigen::VectorXd moved;       ///< logarithms of numbers, relative to what they were before
  Eigen::MatrixXd covariance;  ///< of these
  double noise = 0;            ///< standard deviation of one run
  double log_noise = 0, log_noise_spread = 0;  ///< mean and deviation of its logarithm
};

/// Returns the posterior of a linear problem. Numbers and errors are normal. The noise is not
/// known: each of a grid counts by its evidence (Gelman et al., Bayesian Data Analysis, 2013,
/// sections 10.2 and 14.8).
Posterior posterior(const Eigen::MatrixXd& precision, const Eigen::MatrixXd& derivatives,
                    const Eigen::VectorXd& errors, const SourceSpreads& spreads);

}  // namespace plimsoll
