// Legality of ops beyond arity: shapes, dtypes and parameters of each kind, named by op_table.cpp.
#pragma once

#include <span>

#include "base/error.h"
#include "graph/op.h"
#include "graph/tensor.h"

namespace plimsoll {

/// Each says why the op cannot run on these tensors, or yes.
Verdict fine(const Op& op, std::span<const Tensor> tensors);
Verdict elementwise(const Op& op, std::span<const Tensor> tensors);
Verdict check_matmul(const Op& op, std::span<const Tensor> tensors);
Verdict check_bias(const Op& op, std::span<const Tensor> tensors);
Verdict check_bias_residual(const Op& op, std::span<const Tensor> tensors);
Verdict check_bias_gelu(const Op& op, std::span<const Tensor> tensors);
Verdict check_cast(const Op& op, std::span<const Tensor> tensors);
Verdict check_position(const Op& op, std::span<const Tensor> tensors);
Verdict check_own_part(const Op& op, std::span<const Tensor> tensors);
Verdict check_token_loss(const Op& op, std::span<const Tensor> tensors);
Verdict check_begin_step(const Op& op, std::span<const Tensor> tensors);
Verdict check_clip(const Op& op, std::span<const Tensor> tensors);
Verdict check_squared_norm(const Op& op, std::span<const Tensor> tensors);
Verdict check_flat(const Op& op, std::span<const Tensor> tensors);
Verdict check_check_finite(const Op& op, std::span<const Tensor> tensors);
Verdict check_update_loss_scale(const Op& op, std::span<const Tensor> tensors);
Verdict check_update(const Op& op, std::span<const Tensor> tensors);
Verdict check_lamb(const Op& op, std::span<const Tensor> tensors);
Verdict check_layer_norm(const Op& op, std::span<const Tensor> tensors);
Verdict check_embedding(const Op& op, std::span<const Tensor> tensors);
Verdict check_logits(const Op& op, std::span<const Tensor> tensors);
Verdict check_collective(const Op& op, std::span<const Tensor> tensors);
Verdict check_transfer(const Op& op, std::span<const Tensor> tensors);
Verdict check_tokens(const Op& op, std::span<const Tensor> tensors);
// attention_checks.cpp
Verdict check_heads(const Op& op, std::span<const Tensor> tensors);
Verdict check_flash_attention(const Op& op, std::span<const Tensor> tensors);
Verdict check_softmax(const Op& op, std::span<const Tensor> tensors);
Verdict check_rotary(const Op& op, std::span<const Tensor> tensors);
Verdict check_parts(const Op& op, std::span<const Tensor> tensors);
Verdict check_merge_attention(const Op& op, std::span<const Tensor> tensors);
// fp8_checks.cpp
Verdict check_absolute_maximum(const Op& op, std::span<const Tensor> tensors);
Verdict check_quantize(const Op& op, std::span<const Tensor> tensors);
Verdict check_transpose(const Op& op, std::span<const Tensor> tensors);
// family_checks.cpp
Verdict check_predicted(const Op& op, std::span<const Tensor> tensors);
Verdict check_token_types(const Op& op, std::span<const Tensor> tensors);
Verdict check_rms_norm(const Op& op, std::span<const Tensor> tensors);
Verdict check_swiglu(const Op& op, std::span<const Tensor> tensors);
Verdict check_gather(const Op& op, std::span<const Tensor> tensors);
Verdict check_dropout(const Op& op, std::span<const Tensor> tensors);
Verdict check_masked_dropout(const Op& op, std::span<const Tensor> tensors);
Verdict check_bias_dropout_add(const Op& op, std::span<const Tensor> tensors);

}  // namespace plimsoll
