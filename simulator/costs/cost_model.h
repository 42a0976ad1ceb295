// Cost model: how long an op takes, and how that is known.
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
#include "models/cluster/gpu_generation.h"
#include "models/framework/framework.h"
#include "simulator/costs/collective_cost.h"
#include "simulator/costs/estimate.h"
#include "simulator/costs/matmul_curves.h"
#include "simulator/costs/shape_curves.h"
#include "simulator/costs/size_curve.h"
#include "simulator/engine/engine.h"

namespace plimsoll {

/// Costs of ops on one cluster, as one framework runs them.
class CostModel {
 public:
  /// An op that the calibration measured has its curve. Other ops have the cluster's efficiency
  /// parameters, labelled by their source; without these, a roofline from the device's rates,
  /// labelled datasheet. `fitted` is the fit whose values the cluster and the framework hold.
  CostModel(Cluster cluster, std::optional<Calibration> calibration, Framework framework,
            std::optional<FittedCalibration> fitted = std::nullopt);

  /// Returns this model with local ops and dispatch that take `factor` times as long, except for
  /// those that were measured.
  CostModel with_layer_factor(double factor) const;
  /// Returns this model for jobs whose examples differ in length: attention takes `factor` times as
  /// long, on the slowest rank (models/job/examples.h).
  CostModel with_attention_factor(double factor) const {
    CostModel changed = *this;
    changed.attention_factor_ = factor;
    return changed;
  }
  /// Returns this model for jobs with experts, whose rows travel like this.
  CostModel with_token_rows(const TokenRows& rows) const;
  const std::optional<FittedCalibration>& fitted() const { return fitted_; }
  const std::optional<Calibration>& calibration() const { return calibration_; }

  /// The number of kinds of devices in the cluster; local() depends on the kind. A calibration is
  /// of one kind, so a model with a calibration has only one.
  std::size_t device_kinds() const { return 1 + cluster_.other_devices.size(); }
  /// The kind of the device that a rank runs on.
  std::size_t device_kind(std::int64_t rank) const {
    return cluster_.other_devices.empty() ? 0 : plimsoll::device_kind(cluster_, rank);
  }

  /// Returns the time of a local op on a device of `kind`. Work of the host takes the time of its
  /// bytes at the host's rates. For other ops the first of these answers: the
  /// calibrated curve of its kind and compute_dtype() by shape (log-space interpolation;
  /// extrapolated where operands have several types), efficiency parameters, roofline.
  Estimate local(const Op& op, std::span<const Tensor> tensors, std::size_t kind = 0) const;
  /// Returns the time of the framework's other ops beside one kernel (ops_per_kernel). Each takes
  /// the fixed time of a memory-bound kernel, where that was fitted and no such kernel was
  /// measured.
  Picoseconds other_ops(std::size_t kind = 0) const;
  /// Returns the time of a collective or a transfer between ranks that lie like `spread`, from the
  /// last arrival to the end: by the calibrated curve within a node, else by a model.
  Estimate communication(const Op& op, std::span<const Tensor> tensors,
                         const GroupSpread& spread) const;
  /// Returns the same for the instance of its group that `rank` is in, or for `rank` and its peer.
  Estimate communication(const Op& op, std::span<const Tensor> tensors, const Grid& grid,
                         std::int64_t rank = 0) const;
  /// Returns how a communication and local ops slow each other (Execution::processes).
  MutualSlowdown mutual_slowdown(const Op& op, std::span<const Tensor> tensors,
                                 const GroupSpread& spread) const;
  /// Returns how a communication and the kernels beside it, mostly matmuls, slow each other on a
  /// device of `kind` (Execution::streams). Measured overlaps answer; a kind of communication that
  /// was not among them slows nothing. Without any, the device's efficiency parameters answer.
  OverlapCurves::Slowdowns slowdowns(const Op& op, std::span<const Tensor> tensors,
                                     const GroupSpread& spread, std::size_t kind = 0) const;
  /// Returns the links of the rank that a communication passes (Execution::streams). They belong to
  /// the level on which its bytes are slowest: the link out of the rank unless it only receives,
  /// the link into the rank unless it only sends.
  LinkUse link_use(const Op& op, std::span<const Tensor> tensors, const GroupSpread& spread) const;
  /// Whether measured communications slow each other when several go on at once on a node. Only
  /// then does GroupSpread::at_once matter.
  bool has_contention() const { return shapes_.has_contention(); }
  /// Returns the spread of a group whose ranks ascend. at_once is 1: other groups are left out.
  GroupSpread spread(std::span<const std::int64_t> ranks) const;

  Picoseconds dispatch_op() const;  ///< host time to issue one op, at least 1 ps
  /// Returns a time of the framework's host (Host::core_speed) as it is on the cluster's.
  Seconds on_host(Seconds time) const;
  /// Host time on top for each call. On streams it includes the launch of the call's graph, where a
  /// calibration measured launches of the bundled runtime.
  Picoseconds dispatch_call() const;
  /// Whether a calibration measured dispatch_op(). The framework's numbers then do not count.
  bool dispatch_is_measured() const;
  WakeUpCost wake_up() const;  ///< of a host that sleeps while it waits
  /// The communicator that was measured; `local` without a calibration.
  CommunicatorKind communicator() const {
    return calibration_ ? calibration_->communicator : CommunicatorKind::local;
  }
  /// The rule for who does the work. CPU cores run ops themselves, as threads or as processes: the
  /// calibration says which.
  Execution execution() const;
  bool host_executes() const { return execution() != Execution::streams; }
  const Cluster& cluster() const { return cluster_; }
  const Framework& framework() const { return framework_; }

 private:
  /// The parameters for kernels of one kind of device where nothing was measured.
  struct Kernels {
    const Device& device;
    const std::optional<Efficiency>& efficiency;
    AttentionRates attention;
  };
  Kernels kernels(std::size_t kind) const;
  /// Returns the time by the curve of the op's kind and type, if there is one.
  std::optional<Estimate> measured_local(const Op& op, std::span<const Tensor> tensors) const;
  /// Returns the time of attention on cores by the curves of products and softmax.
  std::optional<Estimate> tiled_attention(const Op& op, std::span<const Tensor> tensors) const;
  Estimate modelled_local(const Op& op, std::span<const Tensor> tensors, const Kernels& own) const;
  Estimate matmul(const Op& op, std::span<const Tensor> tensors, const Kernels& own) const;
  Estimate attention(const Op& op, std::span<const Tensor> tensors, const Kernels& own) const;
  Estimate memory_bound(const Op& op, std::span<const Tensor> tensors, const Kernels& own) const;
  /// Returns the time of work by the host, or on its link with a device.
  Estimate of_host(const Op& op, std::span<const Tensor> tensors, const Device& device) const;
  /// Returns the bytes that an op moves, in as many ops as the framework has for it.
  Bytes moved_by(const Op& op, std::span<const Tensor> tensors) const;
  static Estimate at_row(const std::map<std::int64_t, SizeCurve>& by_row, std::int64_t length,
                         Bytes moved);
  /// Returns the time by the curve of the op's own kind, or of the kind it is measured as.
  std::optional<TimeParts> measured_communication(const Op& op, std::span<const Tensor> tensors,
                                                  const GroupSpread& spread) const;
  std::optional<TimeParts> measured_kind(OpKind kind, DType dtype, Bytes payload,
                                         const GroupSpread& spread) const;
  std::optional<TimeParts> between_threads(OpKind kind, Bytes payload, std::int64_t ranks) const;

  Cluster cluster_;
  std::optional<FittedCalibration> fitted_;
  /// Returns the spread with the rows of a token, if the op's kernels send a token once to each
  /// rank.
  GroupSpread with_rows_of_tokens(const Op& op, GroupSpread spread) const;

  std::optional<TokenRows> token_rows_;  ///< of jobs with experts
  double layer_factor_ = 1, attention_factor_ = 1;
  std::optional<Calibration> calibration_;
  Framework framework_;
  std::vector<AttentionRates> attention_rates_;  ///< by kind of device
  MatmulCurves matmuls_;
  std::map<std::pair<OpKind, DType>, std::map<std::int64_t, SizeCurve>> ops_;  // then by row length
  std::map<OpKind, std::map<std::int64_t, SizeCurve>> collectives_;  // of threads; then by ranks
  ShapeCurves shapes_;                                               // of processes and devices
  OverlapCurves overlaps_;
};

}  // namespace plimsoll
