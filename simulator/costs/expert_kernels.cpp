// Counts what separate kernels for each expert cost.
#include "simulator/costs/expert_kernels.h"

#include <cmath>

namespace plimsoll {
namespace {

/// The time that each more kernel of a product of experts takes. It is the fixed time of products
/// that were timed alone on A100, H100 and B200 (docs/results/kernels.md). With it, 108 products of
/// 20 to 256 experts on B200 and 12 on A100 are predicted 4 % too fast on average
/// (github:MooreThreads/SimuMax@4dcaae5, configs/system, group_matmul). Fits of runs have another
/// fixed time, which stands for more than a kernel's.
constexpr Seconds kEachExpert(3e-6);

/// Bytes for each value of a 16-bit row to which an expert's bias times the row's weight is added.
/// The weight is f32. So the product is written in f32 (4), the sum reads both and is f32 (2 + 4 +
/// 4), the sums of all experts are joined (4 + 4), and the result is cast back (4 + 2).
constexpr double kWeightedBias = 28;
/// Backward casts the gradient to f32 (2 + 4), and the part of each expert back (4 + 2); it
/// multiplies it by the weight and sums over rows (4 + 4 + 4), by the bias and sums over columns
/// (4 + 4 + 4), and joins the parts of all experts (2 + 2).
constexpr double kWeightedBiasBackward = 40;

}  // namespace

Seconds other_experts(const Framework& framework, const Op& op, std::int64_t experts) {
  const bool multiplies = op.kind == OpKind::grouped_matmul ||
                          op.kind == OpKind::grouped_matmul_backward ||
                          op.kind == OpKind::grouped_weight_gradient;
  // Kernels on several streams fill each other's last waves.
  if (!framework.multiplies_experts_apart || !multiplies) return Seconds(0);
  return kEachExpert * double(experts - 1);
}

std::optional<Bytes> moved_by_bias_apart(const Framework& framework, const Op& op,
                                         std::span<const Tensor> tensors) {
  const bool forward = op.kind == OpKind::grouped_bias_add;
  if (!forward && op.kind != OpKind::grouped_bias_backward) return std::nullopt;
  if (!framework.multiplies_experts_apart) return std::nullopt;
  const Tensor& rows = tensors[op.inputs[0].index()];
  const bool weighted = op.inputs.size() > 3;
  // The product itself adds a bias without weights. Its gradient reads the rows once.
  const double plain = forward ? 0 : double(bytes_of(rows.dtype).count());
  const double bytes = !weighted ? plain : forward ? kWeightedBias : kWeightedBiasBackward;
  return Bytes(std::llround(bytes * double(elements(rows.shape)) * rows.filled));
}

bool sorts_rows(const Framework& framework, const Op& op, std::span<const Tensor> tensors) {
  if (op.kind != OpKind::exchange_rows && op.kind != OpKind::return_rows) return false;
  const Shape& ends = tensors[op.inputs[1].index()].shape;  // [ranks, experts]
  return framework.sorts_exchanged_rows && ends[1] > ends[0];
}

}  // namespace plimsoll
