#include "graph/op_types.h"

#include "graph/op_table.h"

namespace plimsoll {

namespace {

constexpr unsigned kAll = ~0u;

/// Bit i: input i.
unsigned f32_inputs(const Op& op) {
  switch (op.kind) {
    case OpKind::rms_norm_backward:
      return 0b1000;
    case OpKind::layer_norm_backward:
      return 0b11000;
    case OpKind::quantize:  // the maximum
      return op.inputs.size() == 2 ? 0b10 : 0;
    case OpKind::merge_attention:
      return 0b1010;
    case OpKind::flash_attention_backward:  // the last input
      return 1u << (op.inputs.size() - 1);
    case OpKind::logits_sum_exp:
      return 0b10;
    case OpKind::cross_entropy_backward:
      return 0b1100;
    case OpKind::token_loss:
    case OpKind::begin_step:
    case OpKind::squared_norm:
    case OpKind::clip_factor:
    case OpKind::check_finite:
    case OpKind::update_loss_scale:
    case OpKind::square:
    case OpKind::reduce_sum:
    case OpKind::square_root:
    case OpKind::maximum:
    case OpKind::divide:
    case OpKind::scale:
    case OpKind::adamw:
    case OpKind::sgd:
    case OpKind::lamb_norms:
    case OpKind::lamb:
    case OpKind::cast_parameters:
      return kAll;
    default:
      return 0;
  }
}

/// Bit i: output i.
unsigned f32_outputs(OpKind kind) {
  switch (kind) {
    case OpKind::layer_norm:
      return 0b110;
    case OpKind::rms_norm:
    case OpKind::flash_attention:
    case OpKind::merge_attention:
      return 0b10;
    case OpKind::absolute_maximum:
      return 0b1;
    case OpKind::logits_max:
    case OpKind::logits_sum_exp:
    case OpKind::token_loss:
    case OpKind::begin_step:
    case OpKind::squared_norm:
    case OpKind::clip_factor:
    case OpKind::check_finite:
    case OpKind::update_loss_scale:
    case OpKind::square:
    case OpKind::reduce_sum:
    case OpKind::square_root:
    case OpKind::maximum:
    case OpKind::divide:
    case OpKind::scale:
    case OpKind::adamw:
    case OpKind::sgd:
    case OpKind::lamb_norms:
    case OpKind::lamb:
      return kAll;
    default:
      return 0;
  }
}

}  // namespace

bool input_is_f32(const Op& op, std::size_t i) { return (f32_inputs(op) >> i & 1u) != 0; }

bool output_is_f32(const Op& op, std::size_t i) {
  if (may_write_parameters(op.kind) && int(i) >= row(op.kind).least_outputs) return false;
  return (f32_outputs(op.kind) >> i & 1u) != 0 || accumulates(op, i);
}

}  // namespace plimsoll
