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
#include "models/calibration/calibration.h"
#include "models/calibration/fitted_calibration.h"
#include "models/cluster/cluster.h"
#include "models/framework/framework.h"
#include "simulator/costs/collective_cost.h"
#include "simulator/costs/estimate.h"
#include "simulator/costs/matmul_curves.h"
#include "simulator/costs/shape_curves.h"
#include "simulator/costs/size_curve.h"
#include "simulator/engine/engine.h"

namespace plimsoll {

class CostModel {
 public:
  /// Points of the calibration answer for the ops that they are of. All else has the cluster's
  /// efficiency parameters, labelled by what they rest on; without these a roofline from its rates,
  /// labelled datasheet. `fitted`: whose values the cluster and the framework hold already.
  CostModel(Cluster cluster, std::optional<Calibration> calibration, Framework framework,
            std::optional<FittedCalibration> fitted = std::nullopt);

  /// This model, with local ops and dispatch that take this many times as long where they were not
  /// measured.
  CostModel with_layer_factor(double factor) const;
  const std::optional<FittedCalibration>& fitted() const { return fitted_; }

  /// Kinds of devices that the cluster has: what local() differs by. A
  /// calibration is of one kind, so there must be only one then.
  std::size_t device_kinds() const { return 1 + cluster_.other_devices.size(); }
  /// The kind of the device that a rank runs on.
  std::size_t device_kind(std::int64_t rank) const {
    return cluster_.other_devices.empty() ? 0 : plimsoll::device_kind(cluster_, rank);
  }

  /// A local op on a device of `kind`: calibrated curve of its kind and compute_dtype() by shape
  /// (log-space interpolation; where operands are of several types, extrapolated), else efficiency
  /// parameters, else roofline.
  Estimate local(const Op& op, std::span<const Tensor> tensors, std::size_t kind = 0) const;
  /// The time that the device takes for the framework's other ops beside one kernel
  /// (ops_per_kernel): each at least what a memory-bound kernel takes beside its bytes, where that
  /// was fitted and no such kernel was measured.
  Picoseconds other_ops(std::size_t kind = 0) const;
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
  /// How it and the kernels beside it, which are mostly matmuls, slow each other on a device of
  /// `kind` (Execution::streams): as measured, with nothing for kinds of communications that were
  /// not; where no overlap was measured, the device's efficiency parameters.
  OverlapCurves::Slowdowns slowdowns(const Op& op, std::span<const Tensor> tensors,
                                     const GroupSpread& spread, std::size_t kind = 0) const;
  /// Which links it passes (Execution::streams): those of the level that its bytes are slowest on,
  /// out of the rank unless it only receives, into it unless it only sends.
  LinkUse link_use(const Op& op, std::span<const Tensor> tensors, const GroupSpread& spread) const;
  /// Whether communications that go on at once on a node slow each other in what was measured, so
  /// that GroupSpread::at_once matters.
  bool has_contention() const { return shapes_.has_contention(); }
  /// The spread of a group whose ranks ascend. Other groups of the same kind are left out: at_once
  /// is 1.
  GroupSpread spread(std::span<const std::int64_t> ranks) const;

  Picoseconds dispatch_op() const;  ///< host time to issue one op, at least 1 ps
  /// Host time on top for each call; on streams with what launching its graph takes, where a
  /// calibration measured launches of the bundled runtime.
  Picoseconds dispatch_call() const;
  Picoseconds dispatch_communication() const;  ///< host time on top for each communication
  /// A calibration measured dispatch_op(); the framework's numbers do not count.
  bool dispatch_is_measured() const;
  Waking waking() const;  ///< what sleeping while it waits costs a host
  /// The communicator that communications are measured over; `local` without a calibration.
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
  /// The curves for kernels of one kind of device where nothing was measured.
  struct Kernels {
    const Device& device;
    const std::optional<Efficiency>& efficiency;
  };
  Kernels kernels(std::size_t kind) const;
  /// By the curve of its kind and type, if there is one.
  std::optional<Estimate> measured_local(const Op& op, std::span<const Tensor> tensors) const;
  Estimate modelled_local(const Op& op, std::span<const Tensor> tensors, const Kernels& own) const;
  Estimate matmul(const Op& op, std::span<const Tensor> tensors, const Kernels& own) const;
  static Estimate attention(const Op& op, std::span<const Tensor> tensors, const Kernels& own);
  Estimate memory_bound(const Op& op, std::span<const Tensor> tensors, const Kernels& own) const;
  /// The bytes that an op moves, in as many ops as the framework has for it.
  Bytes moved_by(const Op& op, std::span<const Tensor> tensors) const;
  static Estimate at_row(const std::map<std::int64_t, SizeCurve>& by_row, std::int64_t length,
                         Bytes moved);
  /// By the curve of its own kind, else by that of the kind it is measured as.
  std::optional<TimeParts> measured_communication(const Op& op, std::span<const Tensor> tensors,
                                                  const GroupSpread& spread) const;
  std::optional<TimeParts> measured_kind(OpKind kind, DType dtype, Bytes payload,
                                         const GroupSpread& spread) const;
  std::optional<TimeParts> between_threads(OpKind kind, Bytes payload, std::int64_t ranks) const;

  Cluster cluster_;
  std::optional<FittedCalibration> fitted_;
  double layer_factor_ = 1;
  std::optional<Calibration> calibration_;
  Framework framework_;
  MatmulCurves matmuls_;
  std::map<std::pair<OpKind, DType>, std::map<std::int64_t, SizeCurve>> ops_;  // then by row length
  std::map<OpKind, std::map<std::int64_t, SizeCurve>> collectives_;  // of threads; then by ranks
  ShapeCurves shapes_;                                               // of processes and devices
  OverlapCurves overlaps_;
};

}  // namespace plimsoll
