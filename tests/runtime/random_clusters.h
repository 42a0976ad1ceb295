// Clusters drawn at random, to place drawn strategies on.
#pragma once

#include <cstdint>

#include "models/cluster/cluster.h"

namespace plimsoll {

/// 1 to 8 devices per node, GPUs or CPU cores; in half of the clusters some nodes have devices of
/// another kind, with rates and perhaps efficiency parameters of their own; one to three levels of
/// which the outer ones may be oversubscribed; latencies and rates over orders of magnitude.
Cluster draw_cluster(std::uint64_t seed);

}  // namespace plimsoll
