// This fit finds a device's kernel parameters from single kernels that somebody timed.
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

}  // namespace plimsoll
