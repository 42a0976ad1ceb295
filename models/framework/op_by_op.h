// Op by op: the ops that a framework runs as the several ops of their formula.
#pragma once

#include "graph/op.h"
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

}  // namespace plimsoll
