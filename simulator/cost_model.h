// Cost model: how long an op takes, and how we know.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/units.h"
#include "graph/grid.h"
#include "graph/op.h"
#include "models/calibration.h"
#include "models/cluster.h"
#include "models/framework.h"
#include "simulator/collective_cost.h"
#include "simulator/engine.h"
#include "simulator/estimate.h"
#include "simulator/matmul_curves.h"
#include "simulator/shape_curves.h"
#include "simulator/size_curve.h"

namespace plimsoll {

class CostModel {
 public:
  /// Without a calibration: the cluster's efficiency parameters, labelled as they are sourced;
  /// without these either, a roofline from its rates, labelled datasheet.
  CostModel(Cluster cluster, std::optional<Calibration> calibration, Framework framework);

  /// Kinds of devices that the cluster has: what local() differs by. A
  /// calibration is of one kind, so there must be only one then.
  std::size_t device_kinds() const { return 1 + cluster_.other_devices.size(); }
  /// Of the device that a rank runs on.
  std::size_t device_kind(std::int64_t rank) const {
    return cluster_.other_devices.empty() ? 0 : plimsoll::device_kind(cluster_, rank);
  }

  /// A local op on a device of `kind`: calibrated curve of its kind and compute_dtype() by shape
  /// (log-space interpolation; where operands are of several types, extrapolated), else efficiency
  /// parameters, else roofline.
  Estimate local(const Op& op, std::span<const Tensor> tensors, std::size_t kind = 0) const;
  /// A collective or a transfer between ranks that lie like this, from the last arrival to
  /// completion: calibrated curve within a node, else a model.
  Estimate communication(const Op& op, std::span<const Tensor> tensors,
                         const GroupSpread& spread) const;
  /// ... over the instance of its group that `rank` is in, or between `rank` and its peer.
  Estimate communication(const Op& op, std::span<const Tensor> tensors, const Grid& grid,
                         std::int64_t rank = 0) const;
  /// How it and local ops slow each other (Execution::processes); `sends`, `receives`: which ways
  /// this rank's data goes.
  Beside beside(const Op& op, std::span<const Tensor> tensors, const GroupSpread& spread) const;
  /// Whether communications that go on at once on a node slow each other in what was measured, so
  /// that GroupSpread::at_once matters.
  bool has_contention() const { return shapes_.has_contention(); }
  /// Of a group: its ranks ascend. Other groups of the same kind are left out: at_once is 1.
  GroupSpread spread(std::span<const std::int64_t> ranks) const;

  Picoseconds dispatch_op() const;    ///< host time to issue one op, at least 1 ps
  Picoseconds dispatch_call() const;  ///< host time on top for each call
  Waking waking() const;              ///< what sleeping while it waits costs a host
  /// What communications are measured over; `local` without a calibration.
  CommunicatorKind communicator() const {
    return calibration_ ? calibration_->communicator : CommunicatorKind::local;
  }
  /// Who does the work: CPU cores run ops themselves, and communicate as the calibration says that
  /// its ranks did.
  Execution execution() const;
  bool host_executes() const { return execution() != Execution::streams; }
  const Cluster& cluster() const { return cluster_; }
  const Framework& framework() const { return framework_; }

 private:
  /// What answers for the kernels of one kind of device where nothing was measured.
  struct Kernels {
    const Device& device;
    const std::optional<Efficiency>& efficiency;
  };
  Kernels kernels(std::size_t kind) const;
  Estimate matmul(const Op& op, std::span<const Tensor> tensors, const Kernels& own) const;
  static Estimate attention(const Op& op, std::span<const Tensor> tensors, const Kernels& own);
  Estimate memory_bound(const Op& op, std::span<const Tensor> tensors, const Kernels& own) const;
  static Estimate at_row(const std::map<std::int64_t, SizeCurve>& by_row, std::int64_t length,
                         Bytes moved);
  std::optional<Estimate> measured_communication(OpKind kind, Bytes payload,
                                                 const GroupSpread& spread) const;
  std::optional<Estimate> between_threads(OpKind kind, Bytes payload, std::int64_t ranks) const;

  Cluster cluster_;
  std::optional<Calibration> calibration_;
  Framework framework_;
  MatmulCurves matmuls_;
  std::map<std::pair<OpKind, DType>, std::map<std::int64_t, SizeCurve>> ops_;  // then by row length
  std::map<OpKind, std::map<std::int64_t, SizeCurve>> collectives_;  // of threads; then by ranks
  ShapeCurves shapes_;                                               // of processes and devices
  OverlapCurves overlaps_;
};

}  // namespace plimsoll
