// This header has the rows of ops.def as constants, which are checked when the program is compiled.
// It also declares the functions that the rows name. All other code asks row().
#pragma once

#include <array>
#include <span>

#include "base/error.h"
#include "base/units.h"
#include "graph/op_table.h"

namespace plimsoll {

/// A tensor table of a graph or a routine, which the ids of an op's operands index.
using Tensors = std::span<const Tensor>;

/// Returns input or output `i` of an op.
inline const Tensor& in(const Op& op, Tensors tensors, std::size_t i) {
  return tensors[op.inputs[i].index()];
}
inline const Tensor& out(const Op& op, Tensors tensors, std::size_t i) {
  return tensors[op.outputs[i].index()];
}

// These are the values of OpRow::shapes and OpRow::check, in op_checks.cpp and layer_checks.cpp.
// Each says why the op cannot run on these tensors, or yes.
/// Accepts operands that all have one size and dtype.
Verdict elementwise(const Op& op, std::span<const Tensor> tensors);
Verdict check_matmul(const Op& op, std::span<const Tensor> tensors);
Verdict check_cast(const Op& op, std::span<const Tensor> tensors);
Verdict check_position(const Op& op, std::span<const Tensor> tensors);
Verdict check_own_part(const Op& op, std::span<const Tensor> tensors);
Verdict check_squared_norm(const Op& op, std::span<const Tensor> tensors);
Verdict check_moment_scales(const Op& op, std::span<const Tensor> tensors);
Verdict check_flat(const Op& op, std::span<const Tensor> tensors);
Verdict check_update(const Op& op, std::span<const Tensor> tensors);
Verdict check_adafactor(const Op& op, std::span<const Tensor> tensors);
Verdict check_lamb(const Op& op, std::span<const Tensor> tensors);
Verdict check_logits(const Op& op, std::span<const Tensor> tensors);
Verdict check_collective(const Op& op, std::span<const Tensor> tensors);
Verdict check_tokens(const Op& op, std::span<const Tensor> tensors);
Verdict check_absolute_maximum(const Op& op, std::span<const Tensor> tensors);
Verdict check_packed(const Op& op, std::span<const Tensor> tensors);
Verdict check_quantize(const Op& op, std::span<const Tensor> tensors);
Verdict check_transpose(const Op& op, std::span<const Tensor> tensors);
Verdict check_predicted(const Op& op, std::span<const Tensor> tensors);
Verdict check_token_types(const Op& op, std::span<const Tensor> tensors);
Verdict check_rate(const Op& op, std::span<const Tensor> tensors);
Verdict check_dropout(const Op& op, std::span<const Tensor> tensors);
Verdict check_heads(const Op& op, std::span<const Tensor> tensors);
Verdict check_flash_attention(const Op& op, std::span<const Tensor> tensors);
Verdict check_softmax(const Op& op, std::span<const Tensor> tensors);
Verdict check_softmax_sinks(const Op& op, std::span<const Tensor> tensors);
Verdict check_add_sinks(const Op& op, std::span<const Tensor> tensors);
Verdict check_sinks_gradient(const Op& op, std::span<const Tensor> tensors);
Verdict check_share_rope_key(const Op& op, std::span<const Tensor> tensors);
Verdict check_activation(const Op& op, std::span<const Tensor> tensors);
Verdict check_gates(const Op& op, std::span<const Tensor> tensors);
Verdict check_soft_cap(const Op& op, std::span<const Tensor> tensors);
Verdict check_rotary(const Op& op, std::span<const Tensor> tensors);
Verdict check_host_copy(const Op& op, std::span<const Tensor> tensors);
Verdict check_route(const Op& op, std::span<const Tensor> tensors);
Verdict check_join_tokens(const Op& op, std::span<const Tensor> tensors);
Verdict check_balance(const Op& op, std::span<const Tensor> tensors);
Verdict check_received(const Op& op, std::span<const Tensor> tensors);
Verdict check_row_collective(const Op& op, std::span<const Tensor> tensors);
Verdict check_exchange(const Op& op, std::span<const Tensor> tensors);
Verdict check_limit(const Op& op, std::span<const Tensor> tensors);
Verdict check_place(const Op& op, std::span<const Tensor> tensors);
Verdict check_grouped_bias(const Op& op, std::span<const Tensor> tensors);
Verdict check_parts(const Op& op, std::span<const Tensor> tensors);
Verdict check_grouped_heads(const Op& op, std::span<const Tensor> tensors);
Verdict check_merge_attention(const Op& op, std::span<const Tensor> tensors);
Verdict check_repeated_heads(const Op& op, std::span<const Tensor> tensors);

// These are the values of OpRow::bytes and OpRow::flops, in op_costs.cpp.
/// Returns the bytes of the whole where one operand is a part of the other.
Bytes payload_bytes(const Op& op, std::span<const Tensor> tensors);
Bytes embedding_bytes(const Op& op, std::span<const Tensor> tensors);
Bytes embedding_backward_bytes(const Op& op, std::span<const Tensor> tensors);
Bytes own_part_bytes(const Op& op, std::span<const Tensor> tensors);
Bytes gather_rows_bytes(const Op& op, std::span<const Tensor> tensors);
// Ops over arenas move the elements that this rank owns of an attribute group.
Bytes squared_norm_bytes(const Op& op, std::span<const Tensor> tensors);
Bytes reduce_sum_bytes(const Op& op, std::span<const Tensor> tensors);
Bytes read_and_written_bytes(const Op& op, std::span<const Tensor> tensors);
Bytes adamw_bytes(const Op& op, std::span<const Tensor> tensors);
Bytes sgd_bytes(const Op& op, std::span<const Tensor> tensors);
Bytes lamb_norms_bytes(const Op& op, std::span<const Tensor> tensors);
Bytes lamb_bytes(const Op& op, std::span<const Tensor> tensors);
Bytes cast_parameters_bytes(const Op& op, std::span<const Tensor> tensors);
/// Returns the bytes on the link: the host's elements, in the device's type.
Bytes host_copy_bytes(const Op& op, std::span<const Tensor> tensors);

Flops matmul_flops(const Op& op, std::span<const Tensor> tensors);
Flops grouped_matmul_flops(const Op& op, std::span<const Tensor> tensors);
Flops flash_attention_flops(const Op& op, std::span<const Tensor> tensors);
Flops flash_attention_backward_flops(const Op& op, std::span<const Tensor> tensors);

inline constexpr std::array<OpRow, kOpKinds> kOpRows = {{
#define PLIMSOLL_OP(op, cost, ...) \
  OpRow{.kind = OpKind::op, .name = #op, .op_class = OpClass::cost, __VA_ARGS__},
#include "graph/ops.def"
}};

}  // namespace plimsoll
