// Default efficiency: the share of a GPU's rates that ops reach, where a cluster file states none.
#pragma once

#include <cstddef>
#include <string>

#include "models/cluster/cluster.h"

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

}  // namespace plimsoll
