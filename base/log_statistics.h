// Statistics of logarithms: means and spreads of ratios, and the width of a normal distribution.
#pragma once

#include <algorithm>
#include <cmath>

namespace plimsoll {

/// The 0.95 quantile of the standard normal distribution: half of a 90 % interval in standard
/// deviations.
inline constexpr double kNormal90 = 1.645;

/// Sums of the natural logarithms of positive values.
struct LogStatistics {
  double sum = 0, squares = 0, count = 0;

  void add(double value) {
    sum += std::log(value);
    squares += std::log(value) * std::log(value);
    count += 1;
  }
  double geometric_mean() const { return std::exp(sum / count); }
  /// Returns the standard deviation of the logarithms.
  double deviation() const {
    const double mean = sum / count;
    return std::sqrt(std::max(0.0, squares / count - mean * mean));
  }
  /// Returns the factor within which nine in ten values of a log-normal distribution are.
  double factor90() const { return std::exp(kNormal90 * deviation()); }
};

}  // namespace plimsoll
