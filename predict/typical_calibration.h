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

/// Rates of a cluster's kernels and levels in training: each rate that the cluster states times the
/// geometric mean of what fits found of it, relative to what their clusters state
/// (models/presets/spreads/typical-rates.json, written by scripts/typical_rates.py). Fits of the
/// same device and framework do not count, nor do fits with runs of `left_out`, a document. The
/// interval is as wide as nine in ten published runs needed (source_spread()). Nothing for clusters
/// that state no rates of kernels (default_efficiency.h), and for frameworks that it does not
/// describe.
std::optional<FittedCalibration> typical_calibration(const Cluster& cluster,
                                                     const Framework& framework,
                                                     std::string_view left_out = "");

}  // namespace plimsoll
