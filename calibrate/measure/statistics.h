// From timings to a Sample.
#pragma once

#include <vector>

#include "models/calibration/calibration.h"

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

/// Half the width of the distribution-free 95 % confidence interval of the median, relative to the
/// median: between the order statistics n/2 -+ 0.98 sqrt(n) (Le Boudec, Performance Evaluation of
/// Computer and Communication Systems, 2010, section 2.2.2; Hunold and Carpen-Amarie, Reproducible
/// MPI Benchmarking Is Still Not As Easy As You Think, IEEE TPDS 2016, section 5).
double median_error(std::vector<Seconds> timings);
/// Below which no more timings are taken.
inline constexpr double kMedianKnown = 0.05;

}  // namespace plimsoll
