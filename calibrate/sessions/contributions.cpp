// Contributions are merged into a median, and outliers counted.
#include "calibrate/sessions/contributions.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "calibrate/measure/statistics.h"

namespace plimsoll {
namespace {

std::vector<Seconds> medians(std::span<const Contribution> contributions) {
  std::vector<Seconds> values;
  for (const Contribution& one : contributions) values.push_back(one.sample.median);
  return values;
}

}  // namespace

Sample merged(std::span<const Contribution> contributions) {
  INVARIANT(!contributions.empty(), "somebody measures");
  std::vector<Seconds> spreads;
  Sample sample;
  for (const Contribution& one : contributions) {
    spreads.push_back(one.sample.spread);
    sample.samples += one.sample.samples;
  }
  const std::vector<Seconds> values = medians(contributions);
  sample.median = quantile(values, 0.5);
  sample.spread = std::max(quantile(spreads, 0.5), quantile(values, 0.75) - quantile(values, 0.25));
  sample.unsteady = sample.spread > kUnsteady * sample.median;
  return sample;
}

void Outliers::add_test(std::span<const Contribution> contributions) {
  if (contributions.size() < 3) return;
  const Seconds median = quantile(medians(contributions), 0.5);
  for (const Contribution& one : contributions) {
    auto at = std::find_if(seen_.begin(), seen_.end(),
                           [&](const Seen& seen) { return seen.who == one.who; });
    if (at == seen_.end()) at = seen_.insert(at, {one.who});
    ++at->tests;
    if (one.sample.median <= median * kSlower) continue;
    ++at->slower;
    at->times += one.sample.median / median;
  }
}

std::vector<std::string> Outliers::named() const {
  std::vector<std::string> words;
  for (const Seen& seen : seen_) {
    if (seen.slower == 0 || double(seen.slower) < kNamedFrom * double(seen.tests)) continue;
    words.push_back(fmt::format("{}: slower than the others in {} of {} tests, by {:.0f} %",
                                seen.who, seen.slower, seen.tests,
                                100 * (seen.times / double(seen.slower) - 1)));
  }
  return words;
}

}  // namespace plimsoll
