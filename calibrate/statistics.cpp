// Quantiles of timings.
#include "calibrate/statistics.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace plimsoll {

Seconds quantile(std::vector<Seconds> timings, double part) {
  INVARIANT(!timings.empty() && part >= 0 && part <= 1, "a quantile of something");
  std::sort(timings.begin(), timings.end());
  const double place = part * double(timings.size() - 1);
  const auto below = std::size_t(std::floor(place));
  const std::size_t above = std::min(below + 1, timings.size() - 1);
  return timings[below] + (timings[above] - timings[below]) * (place - double(below));
}

Sample summarize(const std::vector<Seconds>& timings) {
  INVARIANT(std::int64_t(timings.size()) >= kLeastSamples, "too few timings for a sample");
  Sample sample;
  sample.median = quantile(timings, 0.5);
  sample.spread = quantile(timings, 0.75) - quantile(timings, 0.25);
  sample.samples = std::int64_t(timings.size());
  sample.unsteady = sample.spread > kUnsteady * sample.median;
  return sample;
}

}  // namespace plimsoll
