// A cluster's parameters are found from times of single kernels and communications.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/units.h"
#include "graph/op.h"
#include "models/calibration/fitted_calibration.h"
#include "models/cluster/cluster.h"

namespace plimsoll {

/// An OpTiming is one timing as the fit sees it.
struct OpTiming {
  OpKind kind = OpKind::matmul;
  std::string source;               ///< "repository or document, place in it"
  std::vector<std::int64_t> shape;  ///< timings of one shape are left out together
  Seconds time;
  std::function<Seconds(const Cluster&)> predicted;
  std::int64_t group = 0;  ///< timings of one kind and group have one spread
};

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

/// Fits by robust least squares of the logarithms of times (robust_fit.h), with the cluster's
/// values as priors. At least two shapes are needed.
OpFit fit_timed(std::vector<OpTiming> ops, const Cluster& cluster,
                std::vector<FitParameter> parameters);

std::string fit_text(const OpFit& fit);
/// Returns the JSON of `planner fit --json` for ops (docs/reference/published-runs.md).
std::string op_fit_json(const OpFit& fit);

}  // namespace plimsoll
