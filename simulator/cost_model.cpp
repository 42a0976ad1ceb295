// Which curve or roofline answers for an op, and what the answer is worth.
#include "simulator/cost_model.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/op_table.h"

namespace plimsoll {
namespace {

// Host time per op where nothing was measured.
// CPU: one oneDNN primitive execution, 0.26 us, plus the walk to it (measured on an AVX-512 host).
constexpr Seconds kCpuDispatch{0.3e-6};
// GPU: lower end of 8-15 us per op that removing cast ops saved on V100 hosts (Paddle executor).
constexpr Seconds kGpuDispatch{8e-6};

/// What a kind without any measured rate of its own is charged to: a device without a rate for a
/// dtype computes at its fp32 rate.
FlopsPerSecond peak_or_fp32(const Device& device, DType dtype) {
  if (const auto rate = peak(device, dtype)) return *rate;
  INVARIANT(device.peak_fp32, "the device has no peak rate for " + std::string(to_text(dtype)));
  return *device.peak_fp32;
}

/// Bytes over the wire of the busiest rank relative to the payload, and steps, of a ring.
struct RingFactors {
  double bytes = 1, steps = 1;
};

RingFactors ring(OpKind kind, std::int64_t ranks) {
  const double n = double(ranks);
  switch (kind) {
    case OpKind::all_reduce:
      return {2 * (n - 1) / n, 2 * (n - 1)};
    case OpKind::reduce_scatter:
    case OpKind::all_gather:
      return {(n - 1) / n, n - 1};
    default:
      return {1, 1};  // a transfer
  }
}

Estimate combine(const Estimate& low, const Estimate& high, double part) {
  const Seconds time = low.time * std::exp(part * std::log(high.time / low.time));
  const double relative = std::max(low.spread / low.time, high.spread / high.time);
  const Provenance worst = std::max({low.provenance, high.provenance, Provenance::interpolated});
  return {time, time * relative, worst};
}

}  // namespace

DType op_dtype(const Op& op, std::span<const Tensor> tensors) {
  const TensorId first = op.outputs.empty() ? op.inputs.at(0) : op.outputs[0];
  return tensors[first.index()].dtype;
}

CostModel::CostModel(Cluster cluster, std::optional<Calibration> calibration, Framework framework)
    : cluster_(std::move(cluster)),
      calibration_(std::move(calibration)),
      framework_(std::move(framework)),
      matmuls_(cluster_.device.memory_bandwidth) {
  if (!calibration_) return;
  for (const MatmulPoint& point : calibration_->matmuls) matmuls_.add(point);
  for (const OpPoint& point : calibration_->ops) {
    ops_[{point.kind, point.dtype}][point.row].add(point.moved, point.time);
  }
  for (const CollectivePoint& point : calibration_->collectives) {
    collectives_[point.kind][point.ranks].add(point.payload, point.time);
  }
}

Estimate CostModel::local(const Op& op, std::span<const Tensor> tensors) const {
  switch (row(op.kind).op_class) {
    case OpClass::matmul:
      return matmul(op, tensors);
    case OpClass::memory_bound:
      return memory_bound(op, tensors);
    default:
      INVARIANT(false, std::string(to_text(op.kind)) + " is not a local op");
  }
}

Estimate CostModel::matmul(const Op& op, std::span<const Tensor> tensors) const {
  const DType dtype = op_dtype(op, tensors);
  if (matmuls_.covers(dtype)) {
    const auto& params = std::get<MatmulParams>(op.params);
    const MatmulShape shape = matmul_shape(op, tensors);
    const MatmulForm form{params.transpose_a,   params.transpose_b, params.accumulate,
                          op.inputs.size() > 2, shape.batch > 1,    dtype};
    return matmuls_.at(shape, form);
  }
  const Seconds compute = flops(op, tensors) / peak_or_fp32(cluster_.device, dtype);
  const Seconds memory = bytes_moved(op, tensors) / cluster_.device.memory_bandwidth;
  return {std::max(compute, memory), Seconds(0), Provenance::datasheet};
}

Estimate CostModel::memory_bound(const Op& op, std::span<const Tensor> tensors) const {
  const Bytes moved = bytes_moved(op, tensors);
  const auto found = ops_.find({op.kind, op_dtype(op, tensors)});
  if (found == ops_.end()) {
    return {moved / cluster_.device.memory_bandwidth, Seconds(0), Provenance::datasheet};
  }
  const std::map<std::int64_t, SizeCurve>& by_row = found->second;
  const std::int64_t length = row_length(op, tensors);
  const auto above = by_row.lower_bound(length);
  if (above != by_row.end() && (above->first == length || above == by_row.begin())) {
    Estimate estimate = above->second.at(moved);
    if (above->first != length && above->first != 0) {
      estimate.provenance = std::max(estimate.provenance, Provenance::extrapolated);
    }
    return estimate;
  }
  const auto& [low, low_curve] = *std::prev(above);
  if (above == by_row.end() || low == 0) {
    Estimate estimate = low_curve.at(moved);
    if (low != 0) estimate.provenance = std::max(estimate.provenance, Provenance::extrapolated);
    return estimate;
  }
  const double part =
      std::log(double(length) / double(low)) / std::log(double(above->first) / double(low));
  return combine(low_curve.at(moved), above->second.at(moved), part);
}

Estimate CostModel::communication(const Op& op, std::span<const Tensor> tensors,
                                  GroupSpread spread) const {
  if (spread.ranks <= 1) return {Seconds(0), Seconds(0), Provenance::measured};  // nothing to do
  // A transfer is measured once, under `send`.
  const OpKind kind = op.kind == OpKind::recv ? OpKind::send : op.kind;
  const Bytes payload = bytes_moved(op, tensors);
  if (const auto measured = measured_communication(kind, payload, spread.ranks)) return *measured;
  return modelled_communication(kind, payload, spread);
}

Estimate CostModel::communication(const Op& op, std::span<const Tensor> tensors, const Grid& grid,
                                  std::int64_t rank) const {
  if (const auto* transfer = std::get_if<TransferParams>(&op.params)) {
    const std::int64_t peer = pipeline_peer(grid, rank, transfer->stage_offset);
    return communication(op, tensors, spread(2, std::min(rank, peer), std::max(rank, peer)));
  }
  const auto ranks = members(grid, std::get<CollectiveParams>(op.params).group, rank);
  return communication(op, tensors,
                       spread(std::int64_t(ranks.size()), ranks.front(), ranks.back()));
}

GroupSpread CostModel::spread(std::int64_t ranks, std::int64_t first, std::int64_t last) const {
  std::size_t level = 0;
  while (level + 1 < cluster_.levels.size()) {
    const std::int64_t unit = cluster_.levels[level].devices;
    if (unit <= 0 || first / unit == last / unit) break;
    ++level;
  }
  return {ranks, level};
}

std::optional<Estimate> CostModel::measured_communication(OpKind kind, Bytes payload,
                                                          std::int64_t ranks) const {
  const auto found = collectives_.find(kind);
  if (found == collectives_.end()) return std::nullopt;
  const std::map<std::int64_t, SizeCurve>& by_ranks = found->second;
  if (const auto exact = by_ranks.find(ranks); exact != by_ranks.end()) {
    return exact->second.at(payload);
  }
  const auto nearest =
      std::min_element(by_ranks.begin(), by_ranks.end(), [&](const auto& a, const auto& b) {
        return std::abs(std::log(double(a.first) / double(ranks))) <
               std::abs(std::log(double(b.first) / double(ranks)));
      });
  // One core does the work of all ranks on the local communicator: time grows with their number.
  Estimate estimate = nearest->second.at(payload);
  const double times = double(ranks) / double(nearest->first);
  return Estimate{estimate.time * times, estimate.spread * times, Provenance::extrapolated};
}

Estimate CostModel::modelled_communication(OpKind kind, Bytes payload, GroupSpread spread) const {
  const RingFactors factors = ring(kind, spread.ranks);
  if (cluster_.levels.empty()) {  // devices that share memory: what crosses is copied through it
    return {payload / cluster_.device.memory_bandwidth * factors.bytes, Seconds(0),
            Provenance::datasheet};
  }
  const Level& level = cluster_.levels[spread.level];
  return {payload / level.bandwidth * factors.bytes + level.latency * factors.steps, Seconds(0),
          Provenance::datasheet};
}

Picoseconds CostModel::dispatch_op() const {
  Seconds time = host_executes() ? kCpuDispatch : kGpuDispatch;
  if (calibration_) time = calibration_->dispatch_op.median;
  return std::max(Picoseconds(1), to_picoseconds(time));
}

Picoseconds CostModel::dispatch_call() const {
  return calibration_ ? to_picoseconds(calibration_->dispatch_call.median) : Picoseconds(0);
}

}  // namespace plimsoll
