// Which ops the CUDA backend has, and who prepares them.
#include "runtime/cuda/kernels.h"

#include <fmt/format.h>

#include "graph/op_table.h"

namespace plimsoll {

CudaPrepare cuda_prepare_function(OpKind kind) {
  switch (kind) {
    case OpKind::load_tokens:
    case OpKind::load_targets:
      return prepare_load;
    case OpKind::load_masked_tokens:
    case OpKind::load_masked_positions:
    case OpKind::load_masked_targets:
      return prepare_load_masked;
    case OpKind::gather_rows:
      return prepare_gather_rows;
    case OpKind::gather_rows_backward:
      return prepare_gather_rows_backward;
    case OpKind::token_type_add:
      return prepare_token_type_add;
    case OpKind::token_type_add_backward:
      return prepare_token_type_add_backward;
    case OpKind::layer_norm:
    case OpKind::rms_norm:
      return prepare_norm;
    case OpKind::layer_norm_backward:
    case OpKind::rms_norm_backward:
      return prepare_norm_backward;
    case OpKind::squared_relu:
      return prepare_squared_relu;
    case OpKind::squared_relu_backward:
      return prepare_squared_relu_backward;
    case OpKind::swiglu:
      return prepare_swiglu;
    case OpKind::swiglu_backward:
      return prepare_swiglu_backward;
    case OpKind::rotary:
    case OpKind::rotary_backward:
      return prepare_rotary;
    case OpKind::dropout:
      return prepare_dropout;
    case OpKind::embedding:
      return prepare_embedding;
    case OpKind::embedding_backward:
      return prepare_embedding_backward;
    case OpKind::position_add:
      return prepare_position_add;
    case OpKind::position_add_backward:
      return prepare_position_add_backward;
    case OpKind::matmul:
      return prepare_matmul;
    case OpKind::bias_add:
      return prepare_bias_add;
    case OpKind::bias_gradient:
      return prepare_bias_gradient;
    case OpKind::gelu:
      return prepare_gelu;
    case OpKind::gelu_backward:
      return prepare_gelu_backward;
    case OpKind::add:
      return prepare_add;
    case OpKind::own_part:
      return prepare_own_part;
    case OpKind::split_heads:
      return prepare_split_heads;
    case OpKind::split_heads_backward:
      return prepare_split_heads_backward;
    case OpKind::merge_heads:
      return prepare_merge_heads;
    case OpKind::merge_heads_backward:
      return prepare_merge_heads_backward;
    case OpKind::softmax:
      return prepare_softmax;
    case OpKind::softmax_backward:
      return prepare_softmax_backward;
    case OpKind::flash_attention:
      return prepare_flash_attention;
    case OpKind::flash_attention_backward:
      return prepare_flash_attention_backward;
    case OpKind::logits_max:
      return prepare_logits_max;
    case OpKind::logits_sum_exp:
      return prepare_logits_sum_exp;
    case OpKind::token_loss:
      return prepare_token_loss;
    case OpKind::cross_entropy_backward:
      return prepare_cross_entropy_backward;
    case OpKind::begin_step:
      return prepare_begin_step;
    case OpKind::fill:
      return prepare_fill;
    case OpKind::cast:
      return prepare_cast;
    case OpKind::squared_norm:
      return prepare_squared_norm;
    case OpKind::clip_factor:
      return prepare_clip_factor;
    case OpKind::check_finite:
      return prepare_check_finite;
    case OpKind::update_loss_scale:
      return prepare_update_loss_scale;
    case OpKind::square:
      return prepare_square;
    case OpKind::reduce_sum:
      return prepare_reduce_sum;
    case OpKind::square_root:
      return prepare_square_root;
    case OpKind::maximum:
      return prepare_maximum;
    case OpKind::divide:
      return prepare_divide;
    case OpKind::scale:
      return prepare_scale;
    case OpKind::coalesce:
      return prepare_coalesce;
    case OpKind::adamw:
      return prepare_adamw;
    case OpKind::cast_parameters:
      return prepare_cast_parameters;
    case OpKind::sgd:
      return prepare_sgd;
    case OpKind::lamb_norms:
      return prepare_lamb_norms;
    case OpKind::lamb:
      return prepare_lamb;
    case OpKind::bias_gelu:
    case OpKind::bias_gelu_backward:
    case OpKind::bias_residual_add:
    case OpKind::masked_dropout:
    case OpKind::masked_dropout_backward:
    case OpKind::bias_dropout_add:
    case OpKind::absolute_maximum:
    case OpKind::quantize:
    case OpKind::transpose:
    case OpKind::split_parts:
    case OpKind::join_parts:
    case OpKind::merge_attention:
    case OpKind::ring_shift:
    case OpKind::all_to_all:
    case OpKind::linear:
    case OpKind::attention:
    case OpKind::copy_to_group:
    case OpKind::reduce_from_group:
    case OpKind::all_reduce:
    case OpKind::reduce_scatter:
    case OpKind::all_gather:
    case OpKind::reduce:
    case OpKind::broadcast:
    case OpKind::send:
    case OpKind::recv:
      return nullptr;
  }
  return nullptr;
}

namespace {

constexpr std::int64_t kWidestNorm = 16384, kWidestUnalignedNorm = 8192;
constexpr std::int64_t kWidestHead = 256;

}  // namespace

Verdict cuda_kernel_limits(const Op& op, std::span<const Tensor> tensors) {
  const auto shape = [&](std::size_t i) -> const Shape& {
    return tensors[op.inputs[i].index()].shape;
  };
  switch (op.kind) {
    case OpKind::layer_norm:
    case OpKind::rms_norm:
    case OpKind::layer_norm_backward:
    case OpKind::rms_norm_backward: {
      const std::int64_t width = shape(0).back();
      const std::int64_t most = width % 8 == 0 ? kWidestNorm : kWidestUnalignedNorm;
      if (width <= most) break;
      return Verdict::no(
          fmt::format("the cuda backend normalizes at most {} columns, not {}", most, width));
    }
    case OpKind::flash_attention:
    case OpKind::flash_attention_backward: {
      const std::size_t queries = op.kind == OpKind::flash_attention ? 0 : 1;
      const std::int64_t width = shape(queries)[3];
      if (width % 8 != 0 || width > kWidestHead) {
        return Verdict::no(
            fmt::format("flash attention of the cuda backend has heads of a multiple of 8 up to {} "
                        "elements, not {}",
                        kWidestHead, width));
      }
      if (std::get<AttentionParams>(op.params).dropout > 0)
        return Verdict::no("flash attention of the cuda backend has no dropout");
      break;
    }
    default:
      break;
  }
  return Verdict::yes();
}

std::byte* DeviceScratch::take(std::int64_t bytes) {
  constexpr std::int64_t kAlignment = 256;
  const std::int64_t begin = used_;
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (used_ > std::int64_t(workspace_.size())) {
    throw EnvironmentError(
        fmt::format("{} needs at least {} bytes of workspace; the framework states {}",
                    to_text(kind_), used_, workspace_.size()));
  }
  return workspace_.data() + begin;
}

}  // namespace plimsoll
