// Times of steps follow from what a log prints. Internal to interop/logs.
#pragma once

#include <span>
#include <vector>

#include "interop/logs/training_log.h"

namespace plimsoll {

/// Returns the value below which that part of the values is. There has to be one.
double quantile_of(std::vector<double> values, double part);

/// Returns the trend of steady times. Its deviation is that of medians of kTrendBlocks blocks
/// around the line, because neighbours in a log are not independent (batch means: Law, Simulation
/// Modeling and Analysis, 2015, section 9.5.3).
std::optional<StepTrend> trend_of(std::span<const double> times);
inline constexpr std::size_t kTrendBlocks = 10;

/// Finds slow steps, given the quartiles of the steady ones.
SlowSteps slow_steps(std::span<const std::int64_t> numbers, std::span<const double> times,
                     const SteadyPart& steady);

/// Fills what follows from the steps: times, medians and doubts. `smoothed` says that the printed
/// times are running means.
void tell_times(TrainingLog& log, bool smoothed);

}  // namespace plimsoll
