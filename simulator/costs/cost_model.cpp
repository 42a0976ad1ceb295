// Picks the curve or roofline that answers for an op, and labels the answer.
#include "simulator/costs/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "graph/op_table.h"
#include "models/framework/op_by_op.h"
#include "simulator/costs/efficiency_curves.h"
#include "simulator/costs/expert_kernels.h"

namespace plimsoll {
namespace {

/// A device without a rate for a type computes at its fp32 rate.
FlopsPerSecond peak_or_fp32(const Device& device, DType dtype) {
  if (const auto rate = peak(device, dtype)) return *rate;
  INVARIANT(device.peak_fp32, "the device has no peak rate for " + std::string(to_text(dtype)));
  return *device.peak_fp32;
}

/// Whether all floating-point operands have the type that the op computes in, as in all measured
/// ops.
bool of_one_dtype(const Op& op, std::span<const Tensor> tensors) {
  const DType dtype = compute_dtype(op, tensors);
  const auto is_other = [&](TensorId id) {
    const DType operand = tensors[id.index()].dtype;
    return operand != DType::i32 && operand != dtype;
  };
  return std::none_of(op.inputs.begin(), op.inputs.end(), is_other) &&
         std::none_of(op.outputs.begin(), op.outputs.end(), is_other);
}

/// Whether ranks that lie like `spread` share a node, as the ranks of measured points did.
bool within_a_node(const Cluster& cluster, const GroupSpread& spread) {
  if (spread.level == 0 || cluster.nodes == 1) return true;
  const std::int64_t unit = cluster.levels[spread.level].devices;
  return unit > 0 && unit <= cluster.devices_per_node;
}

Estimate combine(const Estimate& low, const Estimate& high, double part) {
  const Seconds time = low.time * std::exp(part * std::log(high.time / low.time));
  const double relative = std::max(low.spread / low.time, high.spread / high.time);
  const Provenance worst = std::max({low.provenance, high.provenance, Provenance::interpolated});
  return {time, time * relative, worst};
}

/// An update by the host reaches this share of its memory bandwidth. 10^10 parameters took 2.57 s,
/// at 28 bytes each, on 256 GB/s: a DGX-2 with twelve channels of DDR4-2666 (Ren et al. 2021, arXiv
/// 2101.06840, table 4, CPU-Adam; from memory).
constexpr double kUpdateShare = 0.43;

/// Returns the bytes that a kernel moves which adds a gradient of the product's type to the sum.
/// DeepSpeed's BF16_Optimizer first copies the gradient in f32 (runtime/bf16_optimizer.py,
/// update_hp_grads: hp_grad.add_(lp.grad.to(f32))).
Bytes added_apart(const Framework& framework, const Tensor& sum, Bytes gradient) {
  const bool copied = framework.memory.gradients == GradientMemory::bf16_also_in_f32;
  return gradient + (copied && sum.dtype == DType::f32 ? 4 : 2) * bytes_of(sum);
}

/// Whether the rows of both operands run along the inner dimension in a framework's product.
/// Frameworks store weights as [outputs, inputs], the other way round than here. The operands of
/// attention, whose products are batches, lie as they do here.
bool runs_inwards(const MatmulShape& shape, const MatmulParams& params) {
  return !params.transpose_a && params.transpose_b == (shape.batch > 1);
}

}  // namespace

CostModel::CostModel(Cluster cluster, std::optional<Calibration> calibration, Framework framework,
                     std::optional<FittedCalibration> fitted)
    : cluster_(std::move(cluster)),
      fitted_(std::move(fitted)),
      calibration_(std::move(calibration)),
      framework_(std::move(framework)),
      matmuls_(cluster_.device.memory_bandwidth) {
  attention_rates_.push_back(attention_rates(framework_.kernels.attention.kernel, cluster_.device));
  for (const OtherDevices& others : cluster_.other_devices)
    attention_rates_.push_back(attention_rates(framework_.kernels.attention.kernel, others.device));
  if (!calibration_) return;
  INVARIANT(cluster_.other_devices.empty(), "a calibration is of one kind of device");
  for (const MatmulPoint& point : calibration_->matmuls) matmuls_.add(point);
  for (const OpPoint& point : calibration_->ops) {
    ops_[{point.kind, point.dtype}][point.row].add(point.moved, point.time);
  }
  for (const CollectivePoint& point : calibration_->collectives) {
    if (point.communicator != calibration_->communicator) continue;
    if (point.communicator != CommunicatorKind::local) {
      shapes_.add(point);
    } else if (point.nodes == 1) {
      collectives_[point.kind][point.ranks].add(point.payload, point.time);
    }
  }
  for (const OverlapPoint& point : calibration_->overlaps) {
    if (point.communicator == calibration_->communicator) overlaps_.add(point);
  }
}

CostModel::Kernels CostModel::kernels(std::size_t kind) const {
  if (kind == 0) return {cluster_.device, cluster_.efficiency, attention_rates_[0]};
  const OtherDevices& others = cluster_.other_devices.at(kind - 1);
  return {others.device, others.efficiency, attention_rates_[kind]};
}

CostModel CostModel::with_token_rows(const TokenRows& rows) const {
  CostModel changed = *this;
  changed.token_rows_ = rows;
  return changed;
}

CostModel CostModel::with_layer_factor(double factor) const {
  CostModel scaled = *this;
  scaled.layer_factor_ = factor;
  return scaled;
}

Estimate CostModel::local(const Op& op, std::span<const Tensor> tensors, std::size_t kind) const {
  if (is_of_host(op.kind) || op.stream == Stream::host)
    return of_host(op, tensors, kernels(kind).device);
  const std::optional<Estimate> measured = measured_local(op, tensors);
  Estimate estimate = measured ? *measured : modelled_local(op, tensors, kernels(kind));
  estimate.of_calibration = measured.has_value();
  if (row(op.kind).op_class == OpClass::attention)
    estimate.time = estimate.time * attention_factor_;
  // On cores ops take longer in a step than one by one. Elsewhere what was measured stays.
  if (measured && !host_executes()) return estimate;
  estimate.time = estimate.time * layer_factor_;
  estimate.spread = estimate.spread * layer_factor_;
  // Runs determined the factor, whatever the source of the rates.
  if (layer_factor_ != 1 && estimate.provenance != Provenance::extrapolated)
    estimate.provenance = Provenance::fitted;
  return estimate;
}

std::optional<Estimate> CostModel::measured_local(const Op& op,
                                                  std::span<const Tensor> tensors) const {
  const DType dtype = compute_dtype(op, tensors);
  if (row(op.kind).op_class == OpClass::matmul) {
    if (!matmuls_.covers(dtype)) return std::nullopt;
    const MatmulParams params = matmul_params(op);
    const MatmulShape shape = matmul_shape(op, tensors);
    const bool biased = op.kind == OpKind::matmul && op.inputs.size() > 2;
    const MatmulForm form{
        params.transpose_a, params.transpose_b, params.accumulate, biased, shape.batch > 1, dtype};
    return matmuls_.at(shape, form);
  }
  if (row(op.kind).op_class == OpClass::attention) return tiled_attention(op, tensors);
  if (row(op.kind).op_class != OpClass::memory_bound) return std::nullopt;
  const auto found = ops_.find({op.kind, dtype});
  if (found == ops_.end()) return std::nullopt;
  Estimate estimate = at_row(found->second, row_length(op, tensors), moved_by(op, tensors));
  if (!of_one_dtype(op, tensors)) {
    estimate.provenance = std::max(estimate.provenance, Provenance::extrapolated);
  }
  return estimate;
}

// Attention on cores is products and exponentials of f32 tiles, which are left out where no query
// sees a key. Backward walks over the tiles twice (runtime/cpu/attention/flash_attention.cpp).
std::optional<Estimate> CostModel::tiled_attention(const Op& op,
                                                   std::span<const Tensor> tensors) const {
  constexpr std::int64_t kQueries = 64, kKeys = 128;
  const auto softmax = ops_.find({OpKind::softmax, DType::f32});
  const bool cores = cluster_.device.kind == DeviceKind::cpu_core;
  if (!cores || softmax == ops_.end() || !matmuls_.covers(DType::f32)) return std::nullopt;
  const auto& params = std::get<AttentionParams>(op.params);
  const bool backward = op.kind == OpKind::flash_attention_backward;
  const Shape& q = tensors[op.inputs[backward ? 1 : 0].index()].shape;  // [n,parts,a,d]
  const std::int64_t sequence = params.sequence, depth = q[3];
  const std::int64_t rows = std::min(kQueries, q[0]), columns = std::min(kKeys, sequence);
  const auto product = [&](const MatmulShape& shape, bool a, bool b, bool adds) {
    return matmuls_.at(shape, {a, b, adds, false, false, DType::f32}).time;
  };
  const Tensor& y = tensors[(backward ? op.inputs : op.outputs)[0].index()];  // or dy
  const std::int64_t value_depth = elements(y.shape) / (q[0] * q[2]);
  // Products over the columns of queries and keys; for values, over theirs.
  const auto scores = [&](std::int64_t width) {
    return product({1, rows, columns, width}, false, true, false);
  };
  const auto to_rows = [&](std::int64_t width) {
    return product({1, rows, width, columns}, false, false, true);
  };
  const auto to_keys = [&](std::int64_t width) {
    return product({1, columns, width, rows}, true, false, true);
  };
  const Bytes moved = 2 * rows * columns * bytes_of(DType::f32);
  const Seconds weights = at_row(softmax->second, columns, moved).time;
  const Seconds tile = backward ? 2.0 * (scores(depth) + scores(value_depth)) + 2.0 * weights +
                                      to_rows(depth) + (to_keys(depth) + to_keys(value_depth))
                                : scores(depth) + weights + to_rows(value_depth);
  const double edges = double(rows + columns) / (2 * double(sequence));  // cut by the diagonal
  const double seen = params.causal ? std::min(1.0, 0.5 * share_in_window(params) + edges) : 1.0;
  const double tiles = double(q[0] * q[2] * sequence) / double(rows * columns) * seen;
  return Estimate{tiles * tile, Seconds(0), Provenance::extrapolated};
}

Estimate CostModel::modelled_local(const Op& op, std::span<const Tensor> tensors,
                                   const Kernels& own) const {
  switch (row(op.kind).op_class) {
    case OpClass::matmul:
      return matmul(op, tensors, own);
    case OpClass::attention:
      return attention(op, tensors, own);
    case OpClass::memory_bound:
      return memory_bound(op, tensors, own);
    default:
      INVARIANT(false, std::string(to_text(op.kind)) + " is not a local op");
  }
}

Estimate CostModel::matmul(const Op& op, std::span<const Tensor> tensors,
                           const Kernels& own) const {
  const DType dtype = compute_dtype(op, tensors);
  const FlopsPerSecond rate = peak_or_fp32(own.device, dtype);
  if (own.efficiency) {
    const MatmulParams params = matmul_params(op);
    const MatmulShape shape = matmul_shape(op, tensors);
    Bytes moved = bytes_moved(op, tensors);
    const Tensor& sum = tensors[op.outputs[0].index()];
    // Without fusion another kernel adds the gradient to the sum: a hook of Megatron-LM, or
    // AccumulateGrad of PyTorch's autograd.
    const bool apart = params.accumulate && !framework_.kernels.products.add_gradients;
    const Bytes gradient = elements(sum.shape) * bytes_of(is_fp8(dtype) ? DType::bf16 : dtype);
    if (apart) moved = moved - 2 * bytes_of(sum) + gradient;
    const double of_rows = params.scaled_by_rows ? own.efficiency->matmul.rowwise_rate : 1;
    const double across = dtype == DType::f32 && !runs_inwards(shape, params)
                              ? own.efficiency->matmul.f32_across_rate
                              : 1;
    Estimate estimate =
        efficient_matmul(shape, matmul_alignment(shape, params.transpose_a, params.transpose_b),
                         moved, dtype, of_rows * across * rate, own.device, *own.efficiency);
    if (apart) {
      estimate.time +=
          efficient_move(added_apart(framework_, sum, gradient), own.device, own.efficiency->memory)
              .time;
    }
    estimate.time += other_experts(framework_, op, shape.batch);
    return estimate;
  }
  const Seconds compute = flops(op, tensors) / rate;
  const Seconds memory = bytes_moved(op, tensors) / own.device.memory_bandwidth;
  return {std::max(compute, memory), Seconds(0), Provenance::datasheet};
}

Estimate CostModel::attention(const Op& op, std::span<const Tensor> tensors,
                              const Kernels& own) const {
  const FlopsPerSecond rate = peak_or_fp32(own.device, compute_dtype(op, tensors));
  if (!own.efficiency) {
    const Seconds memory = bytes_moved(op, tensors) / own.device.memory_bandwidth;
    return {std::max(flops(op, tensors) / rate, memory), Seconds(0), Provenance::datasheet};
  }
  const bool backward = op.kind == OpKind::flash_attention_backward;
  const Shape& qkv =
      tensors[op.inputs.at(backward ? 1 : 0).index()].shape;  // [n,3,a,d] or [n,1,a,d]
  const std::int64_t tiles = (qkv[0] + kAttentionTileRows - 1) / kAttentionTileRows * qkv[2];
  const Efficiency& efficiency = *own.efficiency;
  return efficient_attention(
      flops(op, tensors), std::get<AttentionParams>(op.params).causal, tiles,
      (backward ? own.attention.backward : own.attention.forward) * rate,
      backward ? efficiency.attention_backward : efficiency.attention_forward,
      efficiency.matmul.units);
}

Estimate CostModel::memory_bound(const Op& op, std::span<const Tensor> tensors,
                                 const Kernels& own) const {
  const Bytes moved = moved_by(op, tensors);
  if (own.efficiency) return efficient_move(moved, own.device, own.efficiency->memory);
  return {moved / own.device.memory_bandwidth, Seconds(0), Provenance::datasheet};
}

Estimate CostModel::of_host(const Op& op, std::span<const Tensor> tensors,
                            const Device& device) const {
  const Host host = cluster_.host.value_or(Host());
  const OpClass op_class = row(op.kind).op_class;
  const double share = op_class == OpClass::host_memory ? 1 : 0.5;  // copies read and write
  const BytesPerSecond rate = host_executes()                ? share * device.memory_bandwidth
                              : op_class == OpClass::to_host ? host.to_host
                              : op_class == OpClass::to_device
                                  ? host.to_device
                                  : kUpdateShare * host.memory_bandwidth;
  return {bytes_moved(op, tensors) / rate, Seconds(0), Provenance::datasheet};
}

Bytes CostModel::moved_by(const Op& op, std::span<const Tensor> tensors) const {
  const Bytes moved = bytes_moved(op, tensors);
  if (const std::optional<Bytes> bias = moved_by_bias_apart(framework_, op, tensors)) return *bias;
  if (const std::optional<double> share = moved_by_kernels(framework_, op, tensors))
    return Bytes(std::llround(double(moved.count()) * *share));
  if (framework_.kernels.attention.masks_f32_apart && compute_dtype(op, tensors) == DType::f32)
    return Bytes(std::llround(double(moved.count()) * row(op.kind).moved_with_mask));
  if (!runs_by_op(framework_, op.kind)) return moved;
  return Bytes(std::llround(double(moved.count()) * row(op.kind).moved_op_by_op));
}

Picoseconds CostModel::other_ops(std::size_t kind) const {
  const std::optional<Efficiency>& efficiency = kernels(kind).efficiency;
  if (!efficiency || !ops_.empty()) return {};
  return to_picoseconds(efficiency->memory.fixed_time *
                        (framework_.host.dispatch.ops_per_kernel - 1));
}

Estimate CostModel::at_row(const std::map<std::int64_t, SizeCurve>& by_row, std::int64_t length,
                           Bytes moved) {
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

GroupSpread CostModel::with_rows_of_tokens(const Op& op, GroupSpread spread) const {
  const bool moves_rows = op.kind == OpKind::exchange_rows || op.kind == OpKind::return_rows;
  if (moves_rows && framework_.parallelism.sends_tokens_once_per_node)
    spread.token_rows = token_rows_.value_or(TokenRows());
  return spread;
}

Estimate CostModel::communication(const Op& op, std::span<const Tensor> tensors,
                                  const GroupSpread& spread) const {
  if (spread.ranks <= 1) return {Seconds(0), Seconds(0), Provenance::measured};  // nothing to do
  Estimate estimate;
  if (const auto measured = measured_communication(op, tensors, spread)) {
    estimate = measured->whole;
    estimate.of_calibration = true;
  } else {
    const GroupSpread own = with_rows_of_tokens(op, spread);
    estimate = modelled_communication(op.kind, bytes_moved(op, tensors), cluster_, own);
    estimate.time = with_work_of_tokens(op, tensors, own.token_rows.count, estimate.time);
  }
  if (sorts_rows(framework_, op, tensors)) {
    const Bytes copied = 2 * bytes_moved(op, tensors);
    estimate.time += cluster_.efficiency
                         ? efficient_move(copied, cluster_.device, cluster_.efficiency->memory).time
                         : copied / cluster_.device.memory_bandwidth;
  }
  return estimate;
}

Estimate CostModel::communication(const Op& op, std::span<const Tensor> tensors, const Grid& grid,
                                  std::int64_t rank) const {
  if (const auto* transfer = std::get_if<TransferParams>(&op.params)) {
    const std::int64_t peer = pipeline_peer(grid, rank, transfer->stage_offset);
    const std::array<std::int64_t, 2> pair = {std::min(rank, peer), std::max(rank, peer)};
    return communication(op, tensors, spread(pair));
  }
  return communication(op, tensors,
                       spread(members(grid, std::get<CollectiveParams>(op.params).group, rank)));
}

GroupSpread CostModel::spread(std::span<const std::int64_t> ranks) const {
  GroupSpread spread = spread_over(cluster_.levels, ranks);
  if (cluster_.nodes == 1) return spread;  // more ranks than cores share them
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    spread.nodes +=
        ranks[i] / cluster_.devices_per_node != ranks[i - 1] / cluster_.devices_per_node;
  }
  return spread;
}

Execution CostModel::execution() const {
  if (cluster_.device.kind != DeviceKind::cpu_core) return Execution::streams;
  return communicator() == CommunicatorKind::local ? Execution::threads : Execution::processes;
}

MutualSlowdown CostModel::mutual_slowdown(const Op& op, std::span<const Tensor> tensors,
                                          const GroupSpread& spread) const {
  MutualSlowdown mutual;
  if (spread.ranks <= 1) return mutual;
  const OpKind kind = measured_as(op.kind);
  const Bytes payload = bytes_moved(op, tensors);
  const auto speed = [](double slowdown) {
    return std::max(std::int64_t{1}, std::int64_t(double(kFullSpeed) / slowdown));
  };
  for (const LocalWork work : {LocalWork::matmul, LocalWork::memory}) {
    const auto slowdowns = overlaps_.at(kind, spread.nodes > 1, work == LocalWork::matmul, payload);
    mutual.communication[std::size_t(work)] = speed(slowdowns.communication);
    mutual.compute[std::size_t(work)] = speed(slowdowns.compute);
  }
  if (const auto measured = measured_communication(op, tensors, spread)) {
    mutual.latency = to_picoseconds(measured->latency);
  }
  mutual.sends = spread.nodes > 1 && op.kind != OpKind::recv;
  mutual.receives = spread.nodes > 1 && op.kind != OpKind::send;
  return mutual;
}

OverlapCurves::Slowdowns CostModel::slowdowns(const Op& op, std::span<const Tensor> tensors,
                                              const GroupSpread& spread, std::size_t kind) const {
  if (spread.ranks <= 1) return {};
  if (!overlaps_.empty()) {
    return overlaps_.at(measured_as(op.kind), spread.nodes > 1, true, bytes_moved(op, tensors));
  }
  const std::optional<Efficiency>& efficiency = kernels(kind).efficiency;
  if (!efficiency) return {};
  const OverlapEfficiency& overlap = efficiency->overlap;
  return {overlap.compute_slowdown, overlap.communication_slowdown};
}

LinkUse CostModel::link_use(const Op& op, std::span<const Tensor> tensors,
                            const GroupSpread& spread) const {
  if (spread.ranks <= 1 || cluster_.levels.empty()) return {};
  const std::optional<TimeParts> measured = measured_communication(op, tensors, spread);
  const LinkTime time = measured ? LinkTime{measured->latency, spread.level}
                                 : modelled_link_time(op.kind, bytes_moved(op, tensors), cluster_,
                                                      with_rows_of_tokens(op, spread));
  const std::uint32_t out = op.kind != OpKind::recv, in = op.kind != OpKind::send;
  return {(out | in << 1) << 2 * time.level, to_picoseconds(time.latency)};
}

std::optional<TimeParts> CostModel::measured_communication(const Op& op,
                                                           std::span<const Tensor> tensors,
                                                           const GroupSpread& spread) const {
  const Bytes payload = bytes_moved(op, tensors);
  const DType dtype = compute_dtype(op, tensors);
  if (const auto own = measured_kind(op.kind, dtype, payload, spread)) return own;
  if (measured_as(op.kind) == op.kind) return std::nullopt;
  auto measured = measured_kind(measured_as(op.kind), dtype, payload, spread);
  if (measured && (op.kind == OpKind::reduce || op.kind == OpKind::broadcast)) {
    Provenance& provenance = measured->whole.provenance;
    provenance = std::max(provenance, Provenance::extrapolated);
  }
  return measured;
}

std::optional<TimeParts> CostModel::measured_kind(OpKind kind, DType dtype, Bytes payload,
                                                  const GroupSpread& spread) const {
  if (communicator() != CommunicatorKind::local) {
    return shapes_.at(kind, dtype, payload, spread);
  }
  if (!within_a_node(cluster_, spread)) return std::nullopt;
  std::optional<TimeParts> parts = between_threads(kind, payload, spread.ranks);
  if (parts && adds_up(kind) && dtype != DType::f32) {  // f32 is what is measured
    parts->whole.provenance = std::max(parts->whole.provenance, Provenance::extrapolated);
  }
  return parts;
}

std::optional<TimeParts> CostModel::between_threads(OpKind kind, Bytes payload,
                                                    std::int64_t ranks) const {
  const auto found = collectives_.find(kind);
  if (found == collectives_.end()) return std::nullopt;
  const std::map<std::int64_t, SizeCurve>& by_ranks = found->second;
  if (const auto exact = by_ranks.find(ranks); exact != by_ranks.end()) {
    return exact->second.parts_at(payload);
  }
  const auto nearest =
      std::min_element(by_ranks.begin(), by_ranks.end(), [&](const auto& a, const auto& b) {
        return std::abs(std::log(double(a.first) / double(ranks))) <
               std::abs(std::log(double(b.first) / double(ranks)));
      });
  // On the local communicator one core does the work of all ranks, so time grows with their number.
  const auto [estimate, latency] = nearest->second.parts_at(payload);
  const double times = double(ranks) / double(nearest->first);
  return TimeParts{{estimate.time * times, estimate.spread * times, Provenance::extrapolated},
                   latency * times};
}

bool CostModel::dispatch_is_measured() const {
  return calibration_ && calibration_->dispatch_op.samples > 0;
}

Seconds CostModel::on_host(Seconds time) const {
  return cluster_.host ? time / cluster_.host->core_speed : time;
}

Picoseconds CostModel::dispatch_op() const {
  const Seconds time = dispatch_is_measured()
                           ? calibration_->dispatch_op.median
                           : on_host(framework_.host.dispatch.op * layer_factor_);
  return std::max(Picoseconds(1), to_picoseconds(time));
}

Picoseconds CostModel::dispatch_call() const {
  if (!calibration_) return Picoseconds(0);
  const bool launches =
      calibration_->launch && runs_here(framework_) && execution() == Execution::streams;
  const Seconds launch = launches ? calibration_->launch->median : Seconds(0);
  return to_picoseconds(calibration_->dispatch_call.median + launch);
}

WakeUpCost CostModel::wake_up() const {
  if (!calibration_) return {};
  return {to_picoseconds(calibration_->wake_up.median), to_picoseconds(calibration_->sleeps_after)};
}

}  // namespace plimsoll
