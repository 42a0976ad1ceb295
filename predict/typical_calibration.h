// Typical calibration: rates that fits of other devices and frameworks found, for those without a
// fit.
#pragma once

#include <optional>
#include <string_view>

#include "models/calibration/fitted_calibration.h"
#include "models/cluster/cluster.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// Whether rates typical of training describe a framework's steps better than rates of kernels
/// alone.
bool describes_training(const Framework& framework);

/// Returns rates of a cluster's kernels and levels in training. Each is the rate that the cluster
/// states, times a geometric mean over fits: the fitted rate relative to the rate that the fit's
/// cluster states. The means are in models/presets/spreads/typical-rates.json, which
/// lab/typical_rates.py writes. Fits of the same device and framework do not count, nor do fits
/// with runs of the document `left_out`; fits that were made without that document do. The interval
/// is as wide as nine in ten published runs needed (source_spread()). Returns nothing where the
/// cluster states no rates of kernels (default_efficiency.h), and where describes_training() is
/// false.
std::optional<FittedCalibration> typical_calibration(const Cluster& cluster,
                                                     const Framework& framework,
                                                     std::string_view left_out = "");

}  // namespace plimsoll
