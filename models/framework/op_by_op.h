// Op by op: the ops that a framework runs as the several ops of their formula.
#pragma once

#include <span>

#include "graph/op.h"
#include "graph/tensor.h"
#include "models/framework/framework.h"

namespace plimsoll {

/// Returns whether a framework runs an op of this kind as formulas of several ops
/// (Framework::elementwise_by_op) and not as one kernel.
inline bool runs_by_op(const Framework& framework, OpKind kind) {
  switch (kind) {
    case OpKind::layer_norm:
    case OpKind::layer_norm_backward:
    case OpKind::rms_norm:
    case OpKind::rms_norm_backward:
      return framework.elementwise_by_op && !framework.fused_norms;
    case OpKind::softmax:
    case OpKind::softmax_backward:
      return framework.elementwise_by_op && !framework.fused_softmax;
    case OpKind::bias_gelu:
    case OpKind::bias_gelu_backward:
      return false;
    default:
      return framework.elementwise_by_op;
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
  if (!framework.masks_f32_apart || scores.dtype == DType::f32) return false;
  const std::int64_t length = scores.shape.back();
  return elements(scores.shape) / (length * length) % 4 != 0;
}

/// The ops that run one by one: two casts, scale, mask and softmax (forward_torch_softmax).
inline constexpr double kPartsOfSoftmax = 5;

}  // namespace plimsoll
