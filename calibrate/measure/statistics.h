// Timings are summarised into a Sample.
#pragma once

#include <vector>

#include "models/calibration/calibration.h"
#include "models/calibration/limits.h"

namespace plimsoll {

/// The ratio of spread to median above which a point counts as unsteady.
inline constexpr double kUnsteady = 0.10;

/// Returns the value below which `part` of the values lie, linear between the two nearest; 0 <=
/// part <= 1.
Seconds quantile(std::vector<Seconds> timings, double part);
double quantile(std::vector<double> values, double part);

/// Returns the median and interquartile range of at least kLeastSamples timings, and sets
/// `unsteady`.
Sample summarize(const std::vector<Seconds>& timings);

/// Returns half the width of the distribution-free 95 % confidence interval of the median, relative
/// to the median. The interval is between the order statistics n/2 -+ 0.98 sqrt(n). (Le Boudec,
/// Performance Evaluation of Computer and Communication Systems, 2010, section 2.2.2; Hunold and
/// Carpen-Amarie, Reproducible MPI Benchmarking Is Still Not As Easy As You Think, IEEE TPDS 2016,
/// section 5.)
double median_error(std::vector<Seconds> timings);
/// No more timings are taken once median_error() is below this.
inline constexpr double kMedianKnown = 0.05;

}  // namespace plimsoll
