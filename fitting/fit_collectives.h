// This fit finds a network's parameters from single communications that somebody timed.
#pragma once

#include <span>

#include "fitting/collective_measurement.h"
#include "fitting/timed_ops.h"
#include "models/cluster/cluster.h"

namespace plimsoll {

/// Fits three numbers for each level that the collectives cross: the fraction of its bandwidth that
/// they reach, their fixed time, and the latency of a step (timed_ops.h; the formula is
/// modelled_communication()). Each number of ranks has a spread of its own, since some may be wired
/// differently than a level says. Three kinds are left out: collectives on other GPUs; collectives
/// of less than 1 MiB, for which libraries choose protocols by their own rules; and collectives
/// across nodes, whose networks differ even where GPUs are alike. The errors of unseen ops leave
/// out one number of ranks at a time, or one size where there is one number. Throws InfeasibleError
/// where fewer than 10 points are left, and InputError where the cluster has no efficiency
/// parameters.
OpFit fit_collectives(std::span<const CollectiveMeasurement> points, const Cluster& cluster);

}  // namespace plimsoll
