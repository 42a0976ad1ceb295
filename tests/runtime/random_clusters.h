// Clusters drawn at random, to place drawn strategies on.
#pragma once

#include <cstdint>

#include "models/cluster/cluster.h"

namespace plimsoll {

/// Draws a cluster with 1 to 8 devices per node, GPUs or CPU cores. In half of the clusters some
/// nodes have devices of another kind, with rates and perhaps efficiency parameters of their own.
/// There are one to three levels, and the outer ones may be oversubscribed. Latencies and rates
/// span orders of magnitude.
Cluster draw_cluster(std::uint64_t seed);

}  // namespace plimsoll
