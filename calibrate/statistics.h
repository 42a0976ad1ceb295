// From timings to a Sample.
#pragma once

#include <vector>

#include "models/calibration.h"

namespace plimsoll {

/// Fewest timings a Sample may rest on.
inline constexpr std::int64_t kLeastSamples = 7;
/// Spread over median from which a point counts as unsteady.
inline constexpr double kUnsteady = 0.10;

/// Value below which `part` of the values lie, linear between the two nearest; 0 <= part <= 1.
Seconds quantile(std::vector<Seconds> timings, double part);
double quantile(std::vector<double> values, double part);

/// Median and interquartile range of at least kLeastSamples timings; `unsteady` as above.
Sample summarize(const std::vector<Seconds>& timings);

}  // namespace plimsoll
