// Trends of step times, and the steps that are slower than others.
#include <algorithm>
#include <cmath>

#include "interop/logs/steady_part.h"

namespace plimsoll {
namespace {

/// The 0.95 quantile of Student's t distribution with kTrendBlocks - 2 degrees of freedom.
constexpr double kStudent90 = 1.860;
/// Interquartile ranges above the upper quartile, beyond which a value is "far out" (Tukey,
/// Exploratory Data Analysis, 1977, section 2D).
constexpr double kFarOut = 3;
/// A slow step exceeds the median by at least this share of it.
constexpr double kLeastSlow = 0.05;
/// Slow steps come regularly if there are at least kLeastDistances distances between them, and if
/// kRegular of the distances are equal.
constexpr std::size_t kLeastDistances = 3;
constexpr double kRegular = 0.75;

std::optional<std::int64_t> period_of(const std::vector<std::int64_t>& slow) {
  std::vector<std::int64_t> distances;
  for (std::size_t i = 1; i < slow.size(); ++i) distances.push_back(slow[i] - slow[i - 1]);
  if (distances.size() < kLeastDistances) return std::nullopt;
  std::ranges::sort(distances);
  const std::int64_t median = distances[distances.size() / 2];
  const auto equal = double(std::ranges::count(distances, median));
  if (median < 2 || equal < kRegular * double(distances.size())) return std::nullopt;
  return median;
}

}  // namespace

std::optional<StepTrend> trend_of(std::span<const double> times) {
  if (times.size() < kLeastOfTrend) return std::nullopt;
  std::vector<double> x, y;
  double mean_x = 0, mean_y = 0;
  for (std::size_t b = 0; b < kTrendBlocks; ++b) {
    const std::size_t from = b * times.size() / kTrendBlocks;
    const std::size_t to = (b + 1) * times.size() / kTrendBlocks;
    x.push_back(double(from + to - 1) / 2);
    y.push_back(std::log(quantile_of(
        {times.begin() + std::ptrdiff_t(from), times.begin() + std::ptrdiff_t(to)}, 0.5)));
    mean_x += x.back() / kTrendBlocks;
    mean_y += y.back() / kTrendBlocks;
  }
  double xx = 0, xy = 0, yy = 0;
  for (std::size_t b = 0; b < kTrendBlocks; ++b) {
    xx += (x[b] - mean_x) * (x[b] - mean_x);
    xy += (x[b] - mean_x) * (y[b] - mean_y);
    yy += (y[b] - mean_y) * (y[b] - mean_y);
  }
  const double whole = double(times.size() - 1);
  const double variance = std::max(0.0, yy - xy * xy / xx) / (kTrendBlocks - 2);
  return StepTrend{whole * xy / xx, whole * kStudent90 * std::sqrt(variance / xx)};
}

SlowSteps slow_steps(std::span<const std::int64_t> numbers, std::span<const double> times,
                     const SteadyPart& steady) {
  const double median = steady.median.value(), upper = steady.upper_quartile.value();
  const double usual = std::max(upper + kFarOut * (upper - steady.lower_quartile.value()),
                                (1 + kLeastSlow) * median);
  std::vector<std::int64_t> slow;
  double lost = 0, total = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    total += times[i];
    if (times[i] <= usual) continue;
    slow.push_back(numbers[i]);
    lost += times[i] - median;
  }
  return {double(slow.size()) / double(times.size()), lost / total, period_of(slow)};
}

}  // namespace plimsoll
