// Op by op: the ops that a framework runs as the several ops of their formula.
#pragma once

#include <optional>
#include <span>

#include "graph/op.h"
#include "graph/tensor.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// Returns whether a framework runs an op of this kind as formulas of several ops
/// (Framework::kernels.elementwise.by_op) and not as one kernel.
inline bool runs_by_op(const Framework& framework, OpKind kind) {
  switch (kind) {
    case OpKind::layer_norm:
    case OpKind::layer_norm_backward:
    case OpKind::rms_norm:
    case OpKind::rms_norm_backward:
      return framework.kernels.elementwise.by_op && !framework.kernels.elementwise.fused_norms;
    case OpKind::softmax:
    case OpKind::softmax_backward:
      return framework.kernels.elementwise.by_op && !framework.kernels.elementwise.fused_softmax;
    case OpKind::bias_gelu:
    case OpKind::bias_gelu_backward:
      return false;
    default:
      return framework.kernels.elementwise.by_op;
  }
}

/// Returns whether scale, mask and softmax of scores run one by one in f32, since the framework's
/// kernel of all three cannot take them. The kernel that masks_f32_apart stands for takes 16-bit
/// scores of micro-batch x heads matrices, if their number is a multiple of 4 (Megatron-LM
/// megatron/model/fused_softmax.py, is_kernel_available). f32 scores have a mask apart alone.
inline bool softmax_by_parts(const Framework& framework, const Op& op,
                             std::span<const Tensor> tensors) {
  if (op.kind != OpKind::softmax && op.kind != OpKind::softmax_backward) return false;
  const Tensor& scores = tensors[op.inputs[0].index()];
  if (!framework.kernels.attention.masks_f32_apart || scores.dtype == DType::f32) return false;
  const std::int64_t length = scores.shape.back();
  return elements(scores.shape) / (length * length) % 4 != 0;
}

/// Returns the bytes that the kernels of a softmax or of the loss move, relative to the op's. It is
/// absent if they move the op's bytes.
/// - Scale, mask and softmax one by one in f32 move 36 bytes for a 16-bit score instead of 4. In
///   backward they move 40 instead of 6.
/// - Megatron-LM's causal kernel reads the scores at and below the diagonal alone, and writes all
///   (fused_kernels/scaled_upper_triang_masked_softmax.h). On a V100 whole passes would take 890
///   and 970 of its 900 GB/s (github.com/microsoft/SuperScaler branch EuroSys24AE,
///   profiler/profiled-time-eurosys, enc-attention-softmax).
/// - Megatron-LM's loss subtracts, exponentiates, adds up and divides f32 logits in four kernels:
///   28 bytes for a logit instead of 4 (mpu/cross_entropy.py). With the cast and the maximum these
///   are 38 in forward. On a V100 it takes as long as 34 at 0.8 of its bandwidth (the same
///   profiles, gpt-post-process without its product).
inline std::optional<double> moved_by_kernels(const Framework& framework, const Op& op,
                                              std::span<const Tensor> tensors) {
  if (op.kind == OpKind::logits_sum_exp && framework.memory.loss == LossMemory::in_place)
    return 28.0 / 4;
  const bool backward = op.kind == OpKind::softmax_backward;
  if (op.kind != OpKind::softmax && !backward) return std::nullopt;
  if (softmax_by_parts(framework, op, tensors)) return backward ? 40.0 / 6 : 36.0 / 4;
  const bool one_kernel = framework.kernels.attention.masks_f32_apart &&
                          !runs_by_op(framework, op.kind) &&
                          tensors[op.inputs[0].index()].dtype != DType::f32;
  if (!one_kernel || !std::get<AttentionParams>(op.params).causal) return std::nullopt;
  return backward ? 2.0 / 3 : 1.5 / 2;
}

/// The ops that run one by one: two casts, scale, mask and softmax (forward_torch_softmax).
inline constexpr double kPartsOfSoftmax = 5;

}  // namespace plimsoll
