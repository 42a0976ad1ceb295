// Types that the families of CPU kernels share: the request, scratch memory, and a kernel made of a
// function. Internal to runtime/cpu.
#pragma once

#include <memory>
#include <utility>
#include <variant>

#include "runtime/backend.h"

namespace plimsoll {

struct OneDnn;

using Addresses = std::span<std::byte* const>;

/// One op to be prepared; legal by the op table and supported.
struct KernelRequest {
  const Op& op;
  std::span<const Tensor> tensors;
  const RankContext& context;
  const OneDnn& library;

  const Tensor& input(std::size_t i) const { return tensors[op.inputs[i].index()]; }
  const Tensor& output(std::size_t i) const { return tensors[op.outputs[i].index()]; }
  std::int64_t input_elements(std::size_t i) const { return elements(input(i).shape); }
  std::int64_t output_elements(std::size_t i) const { return elements(output(i).shape); }
  template <class Params>
  const Params& params() const {
    return std::get<Params>(op.params);
  }
};

/// Hands out the rank's workspace to one kernel, whose runs may use all of it: kernels of a rank
/// run one after the other.
class Scratch {
 public:
  explicit Scratch(const KernelRequest& request)
      : kind_(request.op.kind), workspace_(request.context.workspace) {}
  /// 64-byte aligned relative to the workspace. Throws EnvironmentError when it does not fit.
  std::byte* take(Bytes size);
  float* take_floats(std::int64_t count);

 private:
  OpKind kind_;
  std::span<std::byte> workspace_;
  Bytes used_;
};

inline const float* floats(Addresses from, std::size_t i) {
  return reinterpret_cast<const float*>(from[i]);
}
inline float* floats_out(Addresses from, std::size_t i) {
  return reinterpret_cast<float*>(from[i]);
}
inline const std::int32_t* ids(Addresses from, std::size_t i) {
  return reinterpret_cast<const std::int32_t*>(from[i]);
}

/// A kernel whose run is `function(inputs, outputs, position)`.
template <class Function>
std::unique_ptr<Kernel> make_kernel(Function function, Flops flops = Flops(0)) {
  class FunctionKernel final : public Kernel {
   public:
    FunctionKernel(Function function, Flops flops)
        : function_(std::move(function)), flops_(flops) {}
    void run(Addresses inputs, Addresses outputs, const RunPosition& position) override {
      function_(inputs, outputs, position);
    }
    Flops flops() const override { return flops_; }

   private:
    Function function_;
    Flops flops_;
  };
  return std::make_unique<FunctionKernel>(std::move(function), flops);
}

using KernelPointer = std::unique_ptr<Kernel>;
// matmul.cpp
KernelPointer prepare_matmul(const KernelRequest& request);
KernelPointer prepare_bias_gradient(const KernelRequest& request);
// panel_matmul.cpp
KernelPointer prepare_panel_matmul(const KernelRequest& request);
// normalization.cpp
KernelPointer prepare_layer_norm(const KernelRequest& request);
KernelPointer prepare_layer_norm_backward(const KernelRequest& request);
// elementwise.cpp
KernelPointer prepare_gelu(const KernelRequest& request);
KernelPointer prepare_gelu_backward(const KernelRequest& request);
KernelPointer prepare_squared_relu(const KernelRequest& request);
KernelPointer prepare_squared_relu_backward(const KernelRequest& request);
KernelPointer prepare_add(const KernelRequest& request);
KernelPointer prepare_bias_add(const KernelRequest& request);
KernelPointer prepare_fill(const KernelRequest& request);
KernelPointer prepare_cast(const KernelRequest& request);
// attention.cpp
KernelPointer prepare_softmax(const KernelRequest& request);
KernelPointer prepare_softmax_backward(const KernelRequest& request);
KernelPointer prepare_split_heads(const KernelRequest& request);
KernelPointer prepare_split_heads_backward(const KernelRequest& request);
KernelPointer prepare_merge_heads(const KernelRequest& request);
KernelPointer prepare_merge_heads_backward(const KernelRequest& request);
// embedding.cpp
KernelPointer prepare_embedding(const KernelRequest& request);
KernelPointer prepare_embedding_backward(const KernelRequest& request);
KernelPointer prepare_position_add(const KernelRequest& request);
KernelPointer prepare_position_add_backward(const KernelRequest& request);
// own_part.cpp
KernelPointer prepare_own_part(const KernelRequest& request);
// loss.cpp
KernelPointer prepare_logits_max(const KernelRequest& request);
KernelPointer prepare_logits_sum_exp(const KernelRequest& request);
KernelPointer prepare_token_loss(const KernelRequest& request);
KernelPointer prepare_cross_entropy_backward(const KernelRequest& request);
// optimizer.cpp
KernelPointer prepare_begin_step(const KernelRequest& request);
KernelPointer prepare_squared_norm(const KernelRequest& request);
KernelPointer prepare_clip_factor(const KernelRequest& request);
KernelPointer prepare_flag_cast(const KernelRequest& request);  ///< cast of an i32 flag, or to one
KernelPointer prepare_check_finite(const KernelRequest& request);
KernelPointer prepare_update_loss_scale(const KernelRequest& request);
KernelPointer prepare_square(const KernelRequest& request);
KernelPointer prepare_reduce_sum(const KernelRequest& request);
KernelPointer prepare_square_root(const KernelRequest& request);
KernelPointer prepare_maximum(const KernelRequest& request);
KernelPointer prepare_divide(const KernelRequest& request);
KernelPointer prepare_scale(const KernelRequest& request);
KernelPointer prepare_coalesce(const KernelRequest& request);
// update.cpp
KernelPointer prepare_adamw(const KernelRequest& request);
KernelPointer prepare_sgd(const KernelRequest& request);
KernelPointer prepare_lamb_norms(const KernelRequest& request);
KernelPointer prepare_lamb(const KernelRequest& request);
// cast_parameters.cpp
KernelPointer prepare_cast_parameters(const KernelRequest& request);
/// An update of masters whose last output is the parameters; `update` does the rest.
KernelPointer prepare_casting_update(const KernelRequest& request, KernelPointer update);
// data.cpp
KernelPointer prepare_load(const KernelRequest& request);  ///< load_tokens and load_targets
// masked_tokens.cpp
KernelPointer prepare_load_masked(const KernelRequest& request);  ///< the three load_masked_*
KernelPointer prepare_gather_rows(const KernelRequest& request);
KernelPointer prepare_gather_rows_backward(const KernelRequest& request);
// token_types.cpp
KernelPointer prepare_token_type_add(const KernelRequest& request);
KernelPointer prepare_token_type_add_backward(const KernelRequest& request);
// rms_norm.cpp
KernelPointer prepare_rms_norm(const KernelRequest& request);
KernelPointer prepare_rms_norm_backward(const KernelRequest& request);
// swiglu.cpp
KernelPointer prepare_swiglu(const KernelRequest& request);
KernelPointer prepare_swiglu_backward(const KernelRequest& request);
// rotary.cpp
KernelPointer prepare_rotary(const KernelRequest& request);  ///< forward and backward
// dropout.cpp
KernelPointer prepare_dropout(const KernelRequest& request);

}  // namespace plimsoll
