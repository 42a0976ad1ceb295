// Default efficiency: what is reached of a GPU's rates where its cluster file does not say.
#pragma once

#include <cstddef>
#include <string>

#include "models/cluster/cluster.h"

namespace plimsoll {

/// Whether a level joins devices of one node only.
bool is_within_node(const Cluster& cluster, std::size_t level);

struct DefaultEfficiency {
  Efficiency efficiency;
  /// Logarithm of what nine in ten devices stay within of it: 0 where it is of the same device.
  double open = 0;
  std::string words;  ///< where it comes from
};

/// The efficiency of the cluster preset that has the same device (device_difference()), else the
/// geometric means over the devices of all cluster presets (of rates of 8-bit operands over those
/// that have such units). A level has that of the same level of that preset, else the mean over
/// levels within nodes or across them. `cluster` is of GPUs.
DefaultEfficiency default_efficiency(const Cluster& cluster);

}  // namespace plimsoll
