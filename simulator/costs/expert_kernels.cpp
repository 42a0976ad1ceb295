// Counts what separate kernels for each expert cost.
#include "simulator/costs/expert_kernels.h"

#include <algorithm>
#include <cmath>

#include "graph/op_table.h"

namespace plimsoll {
namespace {

/// The time that each more kernel of a product of experts takes. It is the fixed time of products
/// that were timed alone on A100, H100 and B200 (docs/results/kernels.md). With it, 108 products of
/// 20 to 256 experts on B200 and 12 on A100 are predicted 4 % too fast on average
/// (github:MooreThreads/SimuMax@4dcaae5, configs/system, group_matmul). Fits of runs have another
/// fixed time, which stands for more than a kernel's.
constexpr Seconds kEachExpert(3e-6);

/// The time of the host to issue each more kernel. The path of Transformer Engine with a product of
/// cuBLASLt for each expert takes 0.267 ms for 8 products that a B200 or GB200 computes faster than
/// that, where one launch for all takes 0.069 (github.com/NVIDIA/TransformerEngine/pull/3134, "8e x
/// 128", pure). It is C++ in forward and in backward. The page does not name the host; its core is
/// taken for one of speed 1.
constexpr Seconds kIssueEachExpert((0.267e-3 - 0.069e-3) / 7);

/// The time of the host to add an expert's bias times the weights of its rows: two parts of
/// splits, a product and a sum (Megatron-LM core/transformer/moe/experts.py, _apply_bias), which
/// are ops of PyTorch's eager mode (13.5 us each, docs/how-it-works/costs.md), and half of it in
/// backward.
constexpr Seconds kIssueBias(4 * 13.5e-6), kIssueBiasBackward = kIssueBias / 2;

/// The time of a token, whatever its width, in kernels that send it once to each rank. The kernel
/// that sums its rows waits for each of them: 581 to 626 us for 8,192 tokens of 512 values. Others
/// look through the experts of a rank to place rows: 154 us, of which bytes take 16, and 104 us on
/// the way back. They are HybridEP's of 2026-03, as it is configured by default, on 8 B200, with 32
/// multiprocessors, 16 experts on a rank and 8 rows for a token
/// (github:harryzhou2000/megatron-lm-moe-experiments@d084ffa0, notes/hybrid-ep-sparse-opt-new.md,
/// "Config 3", hybrid-ep). For 7,168 values bytes take longer (Hybrid-EP_Implementation.md).
constexpr Seconds kCombineToken(74e-9), kPlaceToken(17e-9), kPlaceBackToken(11e-9);

/// Bytes for each value of a 16-bit row to which an expert's bias times the row's weight is added.
/// The weight is f32. So the product is written in f32 (4), the sum reads both and is f32 (2 + 4 +
/// 4), the sums of all experts are joined (4 + 4), and the result is cast back (4 + 2).
constexpr double kWeightedBias = 28;
/// Backward casts the gradient to f32 (2 + 4), and the part of each expert back (4 + 2); it
/// multiplies it by the weight and sums over rows (4 + 4 + 4), by the bias and sums over columns
/// (4 + 4 + 4), and joins the parts of all experts (2 + 2).
constexpr double kWeightedBiasBackward = 40;

/// Returns the number of kernels of the op but one.
std::int64_t other_kernels(const Framework& framework, const Op& op, std::int64_t experts) {
  const bool multiplies = op.kind == OpKind::grouped_matmul ||
                          op.kind == OpKind::grouped_matmul_backward ||
                          op.kind == OpKind::grouped_weight_gradient;
  return framework.kernels.products.experts_apart && multiplies ? experts - 1 : 0;
}

}  // namespace

Seconds other_experts(const Framework& framework, const Op& op, std::int64_t experts) {
  // Kernels on several streams fill each other's last waves.
  return kEachExpert * double(other_kernels(framework, op, experts));
}

Seconds issue_of_other_experts(const Framework& framework, const Op& op,
                               std::span<const Tensor> tensors) {
  const bool adds = op.kind == OpKind::grouped_bias_add;
  if (adds || op.kind == OpKind::grouped_bias_backward) {
    if (!framework.kernels.products.experts_apart || op.inputs.size() <= 3) return Seconds(0);
    const std::int64_t others = tensors[op.inputs[1].index()].shape[0] - 1;
    return (adds ? kIssueBias : kIssueBiasBackward) * double(others);
  }
  if (!row(op.kind).of_experts || row(op.kind).op_class != OpClass::matmul) return Seconds(0);
  const std::int64_t experts = matmul_shape(op, tensors).batch;
  return kIssueEachExpert * double(other_kernels(framework, op, experts));
}

std::optional<Bytes> moved_by_bias_apart(const Framework& framework, const Op& op,
                                         std::span<const Tensor> tensors) {
  const bool forward = op.kind == OpKind::grouped_bias_add;
  if (!forward && op.kind != OpKind::grouped_bias_backward) return std::nullopt;
  if (!framework.kernels.products.experts_apart) return std::nullopt;
  const Tensor& rows = tensors[op.inputs[0].index()];
  const bool weighted = op.inputs.size() > 3;
  // The product itself adds a bias without weights. Its gradient reads the rows once.
  const double plain = forward ? 0 : double(bytes_of(rows.dtype).count());
  const double bytes = !weighted ? plain : forward ? kWeightedBias : kWeightedBiasBackward;
  return Bytes(std::llround(bytes * double(elements(rows.shape)) * rows.filled));
}

Seconds with_work_of_tokens(const Op& op, std::span<const Tensor> tensors, std::int64_t rows,
                            Seconds bytes) {
  const bool returns = op.kind == OpKind::return_rows;
  if (rows <= 1 || (!returns && op.kind != OpKind::exchange_rows)) return bytes;
  const Tensor& own = tensors[(returns ? op.outputs : op.inputs)[0].index()];
  if (own.shape.size() < 2) return bytes;  // the weights of rows, which the same kernels send
  const double tokens = double(own.shape[0]) * own.filled / double(rows);
  if (!returns) return bytes + kPlaceToken * tokens;
  return std::max(bytes, kCombineToken * tokens) + kPlaceBackToken * tokens;
}

bool sorts_rows(const Framework& framework, const Op& op, std::span<const Tensor> tensors) {
  if (op.kind != OpKind::exchange_rows && op.kind != OpKind::return_rows) return false;
  const Shape& ends = tensors[op.inputs[1].index()].shape;  // [ranks, experts]
  return framework.parallelism.sorts_exchanged_rows && ends[1] > ends[0];
}

}  // namespace plimsoll
