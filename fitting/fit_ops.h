// These fits find parameters of a device and its links from single kernels and collectives that
// somebody timed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fitting/op_measurement.h"
#include "models/calibration/fitted_calibration.h"
#include "models/cluster/cluster.h"

namespace plimsoll {

/// The relative errors of one kind of op: "matmul", "flash_attention", "all_reduce".
struct OpFitErrors {
  std::string kind;
  std::int64_t ops = 0;
  double median_before = 0;  ///< with the cluster's own values
  double median = 0, p90 = 0;
  /// The errors where each op is predicted by a fit without the timings of its shape.
  double unseen_median = 0, unseen_p90 = 0;
};

struct OpFit {
  std::vector<FittedValue> values;  ///< in the order of the parameters
  /// The cluster with the fitted values. Fitted groups have the range of their sizes and their
  /// error on unseen shapes. Sources name the ops.
  Cluster cluster;
  std::vector<OpFitErrors> errors;
  std::vector<std::string> sources;  ///< each once
  std::int64_t ops = 0;
};

/// Returns whether a row's GPU has the kernels of the cluster's GPU: it has the same name, or its
/// `devices` name that one.
bool is_device_of(const Cluster& cluster, std::string_view gpu,
                  std::span<const std::string> devices);

/// Fits the kernel parameters of the cluster to timed kernels. Ops of other GPUs are
/// left out. So are matmuls with fewer rows or columns than the smallest two tiles have, since
/// their kernels read operands at rates that no parameter describes. Throws InfeasibleError where
/// fewer than 20 ops are left, and InputError where the cluster has no efficiency parameters.
OpFit fit_ops(std::span<const OpMeasurement> ops, const Cluster& cluster);

/// Fits three numbers for each level that the collectives cross: the fraction of its bandwidth that
/// they reach, their fixed time, and the latency of a step (the formula is
/// modelled_communication()). Each number of ranks has a spread of its own, since some may be wired
/// differently than a level says. Three kinds are left out: collectives on other GPUs; collectives
/// of less than 1 MiB, for which libraries choose protocols by their own rules; and collectives
/// across nodes, whose networks differ even where GPUs are alike. The errors of unseen ops leave
/// out one number of ranks at a time, or one size where there is one number. Throws InfeasibleError
/// where fewer than 10 points are left, and InputError where the cluster has no efficiency
/// parameters.
OpFit fit_collectives(std::span<const CollectiveMeasurement> points, const Cluster& cluster);

std::string fit_text(const OpFit& fit);
/// Returns the JSON of `planner fit --json` for ops (docs/reference/published-runs.md).
std::string op_fit_json(const OpFit& fit);

}  // namespace plimsoll
