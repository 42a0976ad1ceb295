// Quantiles and medians of timings are computed here.
#include "calibrate/measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace plimsoll {

namespace {

template <class Value>
Value quantile_of(std::vector<Value> values, double part) {
  INVARIANT(!values.empty() && part >= 0 && part <= 1, "a quantile of something");
  std::sort(values.begin(), values.end());
  const double place = part * double(values.size() - 1);
  const auto below = std::size_t(std::floor(place));
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (place - double(below));
}

}  // namespace

Seconds quantile(std::vector<Seconds> timings, double part) {
  return quantile_of(std::move(timings), part);
}

double quantile(std::vector<double> values, double part) {
  return quantile_of(std::move(values), part);
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

double median_error(std::vector<Seconds> timings) {
  INVARIANT(!timings.empty(), "a median of something");
  std::sort(timings.begin(), timings.end());
  const auto count = double(timings.size());
  const double reach = 0.98 * std::sqrt(count);
  const auto low = std::size_t(std::max(0.0, std::floor(count / 2 - reach)));
  const auto high = std::size_t(std::min(count - 1, std::ceil(count / 2 + reach)));
  return (timings[high] - timings[low]) / quantile(timings, 0.5) / 2;
}

}  // namespace plimsoll
