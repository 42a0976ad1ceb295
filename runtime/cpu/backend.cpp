// Which ops the CPU backend has, and who prepares them.
#include "runtime/cpu/backend.h"

#include <fmt/format.h>
#include <omp.h>

#include <dnnl.hpp>

#include "graph/op_table.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/onednn.h"
#include "runtime/operand_types.h"

namespace plimsoll {

namespace {

using Prepare = KernelPointer (*)(const KernelRequest&);

/// Null for abstract ops and communication.
Prepare prepare_function(OpKind kind) {
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
    case OpKind::rms_norm:
      return prepare_rms_norm;
    case OpKind::rms_norm_backward:
      return prepare_rms_norm_backward;
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
    case OpKind::layer_norm:
      return prepare_layer_norm;
    case OpKind::layer_norm_backward:
      return prepare_layer_norm_backward;
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
    case OpKind::flash_attention:
    case OpKind::flash_attention_backward:
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

class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }

  Verdict supports(const Op& op, std::span<const Tensor> tensors) const override {
    if (prepare_function(op.kind) == nullptr) {
      return Verdict::no(fmt::format("the cpu backend has no kernel for {}", to_text(op.kind)));
    }
    if (Verdict verdict = check_operand_types(op, tensors, name()); !verdict) return verdict;
    return row(op.kind).check(op, tensors);
  }

  std::unique_ptr<Kernel> prepare(const Op& op, std::span<const Tensor> tensors,
                                  const RankContext& context) override {
    const Verdict verdict = supports(op, tensors);
    INVARIANT(bool(verdict), verdict.reason());
    const OneThread one_thread;
    const KernelRequest request{op, tensors, context, library_};
    auto kernel = prepare_function(op.kind)(request);
    const bool casts =
        may_write_parameters(op.kind) && int(op.outputs.size()) > row(op.kind).least_outputs;
    return casts ? prepare_casting_update(request, std::move(kernel)) : std::move(kernel);
  }

  void enter_thread() override { omp_set_num_threads(1); }

 private:
  OneDnn library_;
};

}  // namespace

std::byte* Scratch::take(Bytes size) {
  const Bytes begin = used_;
  used_ += round_up(size, kBlockAlignment);
  const Bytes available{std::int64_t(workspace_.size())};
  if (used_ > available) {
    throw EnvironmentError(
        fmt::format("{} needs at least {} bytes of workspace; the framework states {}",
                    to_text(kind_), used_.count(), available.count()));
  }
  return workspace_.data() + begin.count();
}

float* Scratch::take_floats(std::int64_t count) {
  return reinterpret_cast<float*>(take(Bytes(count * std::int64_t(sizeof(float)))));
}

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace plimsoll
