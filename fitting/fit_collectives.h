// Fit of collectives: a network's parameters from single communications that somebody timed.
#pragma once

#include <span>

#include "fitting/collective_measurement.h"
#include "fitting/timed_ops.h"
#include "models/cluster/cluster.h"

namespace plimsoll {

/// For each level that the collectives cross: the fraction of its bandwidth that they reach, their
/// fixed time, and the latency of a step (timed_ops.h; the formula is modelled_communication()).
/// Each number of ranks has a spread of its own, since some may be wired otherwise than a level
/// says. Left out are collectives on other GPUs, of less than 1 MiB, for which libraries choose
/// protocols by rules of their own, and across nodes, whose networks differ where GPUs are alike.
/// Errors of unseen ops are with one number of ranks left out, or one size where there is one
/// number. Throws InfeasibleError where fewer than 10 points are left, InputError where the cluster
/// has no efficiency parameters.
OpFit fit_collectives(std::span<const CollectiveMeasurement> points, const Cluster& cluster);

}  // namespace plimsoll
