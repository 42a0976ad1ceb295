// Types that the families of CUDA kernels share: the request, scratch memory, tables, and a kernel
// made of a function. Internal to runtime/cuda.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <variant>

#include "runtime/backend.h"
#include "runtime/cuda/device.h"

namespace plimsoll {

/// One op to be prepared; legal by the op table and supported. The kernel's run() only enqueues on
/// device.stream: it neither waits nor allocates, and may be captured into a graph. What depends on
/// step, micro-batch or layer is read from device.position by the kernel itself.
struct CudaRequest {
  const Op& op;
  std::span<const Tensor> tensors;
  const RankContext& context;
  const CudaDevice& device;  ///< outlives the kernel

  const Tensor& input(std::size_t i) const { return tensors[op.inputs[i].index()]; }
  const Tensor& output(std::size_t i) const { return tensors[op.outputs[i].index()]; }
  std::int64_t input_elements(std::size_t i) const { return elements(input(i).shape); }
  std::int64_t output_elements(std::size_t i) const { return elements(output(i).shape); }
  template <class Params>
  const Params& params() const {
    return std::get<Params>(op.params);
  }
};

/// Hands out the device's workspace to one kernel, whose runs may use all of it: kernels of a rank
/// run one after the other.
class DeviceScratch {
 public:
  explicit DeviceScratch(const CudaRequest& request)
      : kind_(request.op.kind), workspace_(request.device.workspace) {}
  /// 256-byte aligned relative to the workspace. Throws EnvironmentError when it does not fit.
  std::byte* take(std::int64_t bytes);
  template <class T>
  T* take_values(std::int64_t count) {
    return reinterpret_cast<T*>(take(count * std::int64_t(sizeof(T))));
  }
  std::int64_t left() const { return std::int64_t(workspace_.size()) - used_; }

 private:
  OpKind kind_;
  std::span<std::byte> workspace_;
  std::int64_t used_ = 0;
};

using DeviceAddresses = std::span<std::byte* const>;

template <class T>
const T* input_at(DeviceAddresses from, std::size_t i) {
  return reinterpret_cast<const T*>(from[i]);
}
template <class T>
T* output_at(DeviceAddresses from, std::size_t i) {
  return reinterpret_cast<T*>(from[i]);
}

/// A kernel whose run is `function(inputs, outputs)`.
template <class Function>
std::unique_ptr<Kernel> make_cuda_kernel(Function function, Flops flops = Flops(0)) {
  class EnqueuingKernel final : public Kernel {
   public:
    EnqueuingKernel(Function function, Flops flops)
        : function_(std::move(function)), flops_(flops) {}
    void run(DeviceAddresses inputs, DeviceAddresses outputs, const RunPosition&) override {
      function_(inputs, outputs);
    }
    Flops flops() const override { return flops_; }

   private:
    Function function_;
    Flops flops_;
  };
  return std::make_unique<EnqueuingKernel>(std::move(function), flops);
}

using CudaPrepare = std::unique_ptr<Kernel> (*)(const CudaRequest&);
/// Who prepares a kind; null for abstract ops, communication, and what no kernel exists for.
CudaPrepare cuda_prepare_function(OpKind kind);
/// Limits of single kernels beyond dtypes and the op table, e.g. the width of a head.
Verdict cuda_kernel_limits(const Op& op, std::span<const Tensor> tensors);

using CudaKernelPointer = std::unique_ptr<Kernel>;
// matmul.cpp
CudaKernelPointer prepare_matmul(const CudaRequest& request);
// data.cu
CudaKernelPointer prepare_load(const CudaRequest& request);         ///< load_tokens, load_targets
CudaKernelPointer prepare_load_masked(const CudaRequest& request);  ///< the three load_masked_*
// rows.cu
CudaKernelPointer prepare_embedding(const CudaRequest& request);
CudaKernelPointer prepare_gather_rows(const CudaRequest& request);
CudaKernelPointer prepare_gather_rows_backward(const CudaRequest& request);
CudaKernelPointer prepare_bias_add(const CudaRequest& request);
CudaKernelPointer prepare_position_add(const CudaRequest& request);
CudaKernelPointer prepare_token_type_add(const CudaRequest& request);
// embedding_backward.cu
CudaKernelPointer prepare_embedding_backward(const CudaRequest& request);
// column_sums.cu
CudaKernelPointer prepare_bias_gradient(const CudaRequest& request);
CudaKernelPointer prepare_position_add_backward(const CudaRequest& request);
CudaKernelPointer prepare_token_type_add_backward(const CudaRequest& request);
// norms.cu and norms_backward.cu: layer norm and RMS norm
CudaKernelPointer prepare_norm(const CudaRequest& request);
CudaKernelPointer prepare_norm_backward(const CudaRequest& request);
// elementwise.cu
CudaKernelPointer prepare_gelu(const CudaRequest& request);
CudaKernelPointer prepare_gelu_backward(const CudaRequest& request);
CudaKernelPointer prepare_squared_relu(const CudaRequest& request);
CudaKernelPointer prepare_squared_relu_backward(const CudaRequest& request);
CudaKernelPointer prepare_add(const CudaRequest& request);
CudaKernelPointer prepare_square_root(const CudaRequest& request);
CudaKernelPointer prepare_maximum(const CudaRequest& request);
CudaKernelPointer prepare_divide(const CudaRequest& request);
CudaKernelPointer prepare_fill(const CudaRequest& request);
CudaKernelPointer prepare_cast(const CudaRequest& request);
CudaKernelPointer prepare_own_part(const CudaRequest& request);
// swiglu.cu
CudaKernelPointer prepare_swiglu(const CudaRequest& request);
CudaKernelPointer prepare_swiglu_backward(const CudaRequest& request);
// dropout.cu
CudaKernelPointer prepare_dropout(const CudaRequest& request);
// heads.cu
CudaKernelPointer prepare_split_heads(const CudaRequest& request);
CudaKernelPointer prepare_split_heads_backward(const CudaRequest& request);
CudaKernelPointer prepare_merge_heads(const CudaRequest& request);
CudaKernelPointer prepare_merge_heads_backward(const CudaRequest& request);
CudaKernelPointer prepare_rotary(const CudaRequest& request);  ///< forward and backward
// softmax.cu
CudaKernelPointer prepare_softmax(const CudaRequest& request);
CudaKernelPointer prepare_softmax_backward(const CudaRequest& request);
// attention.cu
CudaKernelPointer prepare_flash_attention(const CudaRequest& request);
CudaKernelPointer prepare_flash_attention_backward(const CudaRequest& request);
// loss.cu
CudaKernelPointer prepare_logits_max(const CudaRequest& request);
CudaKernelPointer prepare_logits_sum_exp(const CudaRequest& request);
CudaKernelPointer prepare_token_loss(const CudaRequest& request);
CudaKernelPointer prepare_cross_entropy_backward(const CudaRequest& request);
// step_scalars.cu
CudaKernelPointer prepare_begin_step(const CudaRequest& request);
CudaKernelPointer prepare_clip_factor(const CudaRequest& request);
CudaKernelPointer prepare_update_loss_scale(const CudaRequest& request);
// flat.cu: over what a rank owns of an arena, or a tensor
CudaKernelPointer prepare_squared_norm(const CudaRequest& request);
CudaKernelPointer prepare_check_finite(const CudaRequest& request);
CudaKernelPointer prepare_square(const CudaRequest& request);
CudaKernelPointer prepare_reduce_sum(const CudaRequest& request);
CudaKernelPointer prepare_scale(const CudaRequest& request);
CudaKernelPointer prepare_coalesce(const CudaRequest& request);
CudaKernelPointer prepare_cast_parameters(const CudaRequest& request);
// update.cu
CudaKernelPointer prepare_adamw(const CudaRequest& request);
CudaKernelPointer prepare_sgd(const CudaRequest& request);
CudaKernelPointer prepare_lamb_norms(const CudaRequest& request);
CudaKernelPointer prepare_lamb(const CudaRequest& request);

}  // namespace plimsoll
