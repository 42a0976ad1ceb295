// Times of steps follow from what a log prints. Internal to interop/logs.
#pragma once

#include <vector>

#include "interop/logs/training_log.h"

namespace plimsoll {

/// Returns the value below which that part of the values is. There has to be one.
double quantile_of(std::vector<double> values, double part);

/// Fills what follows from the steps: times, medians and doubts. `smoothed` says that the printed
/// times are running means.
void tell_times(TrainingLog& log, bool smoothed);

}  // namespace plimsoll
