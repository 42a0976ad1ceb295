// These fits find parameters of a device and its links from single kernels and collectives that
// somebody timed.
#pragma once

#include <span>
#include <string_view>

#include "fitting/op_measurement.h"
#include "fitting/timed_ops.h"
#include "models/cluster/cluster.h"

namespace plimsoll {

/// Returns whether a row's GPU has the kernels of the cluster's GPU: it has the same name, or its
/// `devices` name that one.
bool is_device_of(const Cluster& cluster, std::string_view gpu,
                  std::span<const std::string> devices);

/// Fits the kernel parameters of the cluster to timed kernels (timed_ops.h). Ops of other GPUs are
/// left out. So are matmuls with fewer rows or columns than the smallest two tiles have, since
/// their kernels read operands at rates that no parameter describes. Throws InfeasibleError where
/// fewer than 20 ops are left, and InputError where the cluster has no efficiency parameters.
OpFit fit_ops(std::span<const OpMeasurement> ops, const Cluster& cluster);

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
