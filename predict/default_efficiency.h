// Default efficiency: the share of a GPU's rates that ops reach, where a cluster file states none,
// and the rates that are typical of training, averaged over built-in fits.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "models/calibration/fitted_calibration.h"
#include "models/cluster/cluster.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// Whether a level joins devices of one node only.
bool is_within_node(const Cluster& cluster, std::size_t level);

/// An efficiency that other clusters suggest.
struct DefaultEfficiency {
  Efficiency efficiency;
  /// Nine in ten devices are within this factor of it, as a logarithm; 0 for the same device.
  double open = 0;
  std::string words;  ///< says where the efficiency comes from
};

/// Returns the efficiency of the cluster preset that has the same device (device_difference()). For
/// other devices it is the geometric mean over the devices of all cluster presets. A rate of 8-bit
/// operands is the mean over devices that have such units. A level has the efficiency of the same
/// level of that preset, else the mean over levels within nodes or over levels across nodes; a
/// level that states its kind of network reaches the share of that kind. The devices of `cluster`
/// must be GPUs.
DefaultEfficiency default_efficiency(const Cluster& cluster);

/// Whether rates typical of training describe a framework's steps better than rates of kernels
/// alone.
bool describes_training(const Framework& framework);

/// Returns rates of a cluster's kernels and levels in training. Each is the rate that the cluster
/// states, times a geometric mean over fits: the fitted rate relative to the rate that the fit's
/// cluster states. The means are in models/presets/spreads/typical-rates.json, which
/// lab/typical_rates.py writes. Fits of the same device and framework do not count, nor do fits
/// with runs of the document `left_out`; fits that were made without that document do. The interval
/// is as wide as nine in ten published runs needed (source_spread()). Returns nothing where the
/// cluster states no rates of kernels, and where describes_training() is
/// false.
std::optional<FittedCalibration> typical_calibration(const Cluster& cluster,
                                                     const Framework& framework,
                                                     std::string_view left_out = "");

}  // namespace plimsoll
