// Timed ops: a cluster's parameters found from times of single kernels and communications.
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

/// One timing as the fit sees it.
struct OpTiming {
  OpKind kind = OpKind::matmul;
  std::string source;               ///< "repository or document, place in it"
  std::vector<std::int64_t> shape;  ///< timings of one shape are left out together
  Seconds time;
  std::function<Seconds(const Cluster&)> predicted;
  std::int64_t group = 0;  ///< ops of one kind and group have one spread
};

/// Relative errors of one kind of op: "matmul", "flash_attention", "all_reduce".
struct OpFitErrors {
  std::string kind;
  std::int64_t ops = 0;
  double median_before = 0;  ///< with the cluster's own values
  double median = 0, p90 = 0;
  /// Each op by a fit without any of its shape.
  double unseen_median = 0, unseen_p90 = 0;
};

struct OpFit {
  std::vector<FittedValue> values;  ///< in the order of the parameters
  /// With these values; of what was fitted, the range of its sizes and its error on shapes left
  /// out. Sources name the ops.
  Cluster cluster;
  std::vector<OpFitErrors> errors;
  std::vector<std::string> sources;  ///< each once
  std::int64_t ops = 0;
};

/// Robust least squares of the logarithms of times (robust_fit.h), the cluster's values being
/// priors. At least two shapes.
OpFit fit_timed(std::vector<OpTiming> ops, const Cluster& cluster,
                std::vector<FitParameter> parameters);

std::string fit_text(const OpFit& fit);
/// `planner fit --json` of ops: docs/reference/published-runs.md.
std::string op_fit_json(const OpFit& fit);

}  // namespace plimsoll
