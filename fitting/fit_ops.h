// Fit of ops: a device's kernel parameters from single kernels that somebody timed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fitting/op_measurement.h"
#include "models/calibration/fitted_calibration.h"
#include "models/cluster/cluster.h"

namespace plimsoll {

/// Relative errors of one kind of op: "matmul", "flash_attention".
struct OpFitErrors {
  std::string kind;
  std::int64_t ops = 0;
  double median_before = 0;  ///< with the cluster's own values
  double median = 0, p90 = 0;
  /// Each op by a fit without any of its shape.
  double unseen_median = 0, unseen_p90 = 0;
};

struct OpFit {
  std::vector<FittedValue> values;  ///< in the order of fit_parameters; only those of kernels
  /// With these values; of kernels that were fitted, the range of their work and their error on
  /// shapes left out. Sources name the ops.
  Cluster cluster;
  std::vector<OpFitErrors> errors;
  std::vector<std::string> sources;  ///< each once
  std::int64_t ops = 0;
};

/// Whether the GPU that a row names is the cluster's: the same model, and PCIe cards apart from
/// others.
bool is_device_of(const Cluster& cluster, std::string_view gpu);

/// Robust least squares of the logarithms of times (robust_fit.h), the cluster's values being
/// priors; ops of each kind have a spread of their own. Left out are ops of other GPUs and matmuls
/// with fewer rows or columns than the smallest two tiles have, whose kernels read their operands
/// at rates that no parameter describes. Throws InfeasibleError where fewer than 20 are left,
/// InputError where the cluster has no efficiency parameters.
OpFit fit_ops(std::span<const OpMeasurement> ops, const Cluster& cluster);

std::string fit_text(const OpFit& fit);
/// `planner fit --json` of ops: docs/reference/calibration.md.
std::string op_fit_json(const OpFit& fit);

}  // namespace plimsoll
