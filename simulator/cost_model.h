// Cost model: how long an op takes, and how we know.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "graph/grid.h"
#include "graph/op.h"
#include "models/calibration.h"
#include "models/cluster.h"
#include "models/framework.h"

namespace plimsoll {

struct Estimate {
  Seconds time;
  Seconds spread;  ///< half width of what the samples or the interpolation leave open
  Provenance provenance = Provenance::datasheet;
};

class CostModel {
 public:
  /// Without a calibration: roofline from the cluster's device rates, labelled datasheet.
  CostModel(Cluster cluster, std::optional<Calibration> calibration, Framework framework);

  /// A local op: calibrated curve by shape (log-space interpolation), else roofline.
  Estimate local(const Op& op, std::span<const Tensor> tensors) const;
  /// A collective over `group` of `grid`, or a transfer, from the last arrival to completion.
  Estimate communication(const Op& op, std::span<const Tensor> tensors, const Grid& grid) const;

  Picoseconds dispatch_op() const;    ///< host time to issue one op
  Picoseconds dispatch_call() const;  ///< host time on top for each call
  /// True when the host runs the ops itself and a transfer runs on the core of the last arriver.
  bool host_executes() const { return cluster_.device.kind == DeviceKind::cpu_core; }
  const Cluster& cluster() const { return cluster_; }

 private:
  Cluster cluster_;
  std::optional<Calibration> calibration_;
  Framework framework_;
};

}  // namespace plimsoll
