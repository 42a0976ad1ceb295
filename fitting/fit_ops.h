// Fit of ops: a device's kernel parameters from single kernels that somebody timed.
#pragma once

#include <span>
#include <string_view>

#include "fitting/op_measurement.h"
#include "fitting/timed_ops.h"
#include "models/cluster/cluster.h"

namespace plimsoll {

/// Whether the GPU that a row names has the kernels of the cluster's: the same chip, on the same
/// sort of board (models/presets/words/gpus.json).
bool is_device_of(const Cluster& cluster, std::string_view gpu);

/// The kernel parameters of the cluster from timed kernels (timed_ops.h). Left out are ops of other
/// GPUs and matmuls with fewer rows or columns than the smallest two tiles have, whose kernels read
/// their operands at rates that no parameter describes. Throws InfeasibleError where fewer than 20
/// are left, InputError where the cluster has no efficiency parameters.
OpFit fit_ops(std::span<const OpMeasurement> ops, const Cluster& cluster);

}  // namespace plimsoll
