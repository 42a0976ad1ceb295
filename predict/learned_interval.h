// Learned interval: how far a step may be off whose numbers were learned from runs of one's own.
#pragma once

#include <string>
#include <vector>

#include "models/calibration/fit_parameters.h"
#include "predict/evaluate.h"

namespace plimsoll {

/// Returns the derivative of the logarithm of a step time by the logarithm of each parameter, which
/// are those of the target's cluster and framework. It is 0 where a step of that size cannot be
/// predicted. Each takes one simulation.
std::vector<double> step_derivatives(const Target& target, const Strategy& strategy,
                                     const Footprint& footprint, Seconds step_time,
                                     std::span<const FitParameter> parameters);

/// Returns the interval of a step of a target whose fit was learned: the covariance of the learned
/// numbers, the factor of the step's layers, and the noise of steps, as squares. It is no wider
/// than the interval `otherwise` of a step that nothing was learned of.
StepInterval learned_interval(const Target& target, const Strategy& strategy,
                              const Footprint& footprint, const Prediction& prediction,
                              const StepInterval& otherwise);

}  // namespace plimsoll
