// The families of CUDA kernels share these types: the request, scratch memory, tables, and a kernel
// made of a function. They are internal to runtime/cuda.
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

/// A CudaRequest is one op to be prepared. It is legal by the op table and supported. The kernel's
/// run() only enqueues on device.stream. It neither waits nor allocates, and may be captured into a
/// graph. The kernel reads step, micro-batch and layer from device.position itself.
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

/// A DeviceScratch hands out the device's workspace to one kernel. Each kernel may use all of it,
/// since kernels of a rank run one after the other.
class DeviceScratch {
 public:
  explicit DeviceScratch(const CudaRequest& request)
      : kind_(request.op.kind), workspace_(request.device.workspace) {}
  /// Returns memory that is 256-byte aligned relative to the workspace. Throws EnvironmentError
  /// when it does not fit.
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

/// Returns a kernel whose run is `function(inputs, outputs)`.
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
/// Returns the function that prepares a kind. It is null for abstract ops, communications, and
/// kinds without a kernel.
CudaPrepare cuda_prepare_function(OpKind kind);
/// Checks limits of single kernels beyond dtypes and the op table, e.g. the width of a head.
Verdict cuda_kernel_limits(const Op& op, std::span<const Tensor> tensors);

using CudaKernelPointer = std::unique_ptr<Kernel>;

/// Declares prepare_KIND() for each kind that the backend has. The definition stands beside the
/// kernel.
#define PLIMSOLL_OP(op, ...) CudaKernelPointer prepare_##op(const CudaRequest& request);
#include "graph/ops.def"

}  // namespace plimsoll
