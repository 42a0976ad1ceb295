// Typical calibration: what fits of other devices and frameworks found, for those without one.
#pragma once

#include <optional>
#include <string_view>

#include "models/calibration/fitted_calibration.h"
#include "models/cluster/cluster.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// Whether rates typical of training say more of a framework's steps than what kernels reach alone.
bool describes_training(const Framework& framework);

/// Rates of a cluster's kernels and levels in training, from those that it states: times the
/// geometric mean of what the built-in fits, but those of the same device and framework, found of
/// their clusters' (0.89 of what products reach alone, 0.97 of the memory's bandwidth, ...). Runs
/// predicted so were 2 to 25 % off, 9 to 32 % with what the cluster states
/// (docs/results/accuracy.md); the interval is as wide as nine in ten of them needed. Nothing for
/// clusters that state no rates of kernels (default_efficiency.h) and for frameworks that it does
/// not describe. Fits with runs of `left_out`, a document, do not count.
std::optional<FittedCalibration> typical_calibration(const Cluster& cluster,
                                                     const Framework& framework,
                                                     std::string_view left_out = "");

}  // namespace plimsoll
