// The families of CPU kernels share these types: the request, scratch memory, and a kernel made of
// a function. They are internal to runtime/cpu.
#pragma once

#include <memory>
#include <utility>
#include <variant>

#include "runtime/backend.h"

namespace plimsoll {

struct OneDnn;

using Addresses = std::span<std::byte* const>;

/// A KernelRequest is one op to be prepared. It is legal by the op table and supported.
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

/// A Scratch hands out the rank's workspace to one kernel. Each kernel may use all of it, since
/// kernels of a rank run one after the other.
class Scratch {
 public:
  explicit Scratch(const KernelRequest& request)
      : kind_(request.op.kind), workspace_(request.context.workspace) {}
  /// Returns memory that is 64-byte aligned relative to the workspace. Throws EnvironmentError when
  /// it does not fit.
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

/// Returns a kernel whose run is `function(inputs, outputs, position)`.
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

/// Declares prepare_KIND() for each kind that the backend has. The definition stands beside the
/// kernel.
#define PLIMSOLL_OP(op, ...) KernelPointer prepare_##op(const KernelRequest& request);
#include "graph/ops.def"

// The kernels of some kinds consist of these.
KernelPointer prepare_panel_matmul(const KernelRequest& request);
KernelPointer prepare_flag_cast(const KernelRequest& request);  ///< cast of an i32 flag, or to one
/// Prepares an update of masters whose last output is the parameters. `update` does all but that
/// output.
KernelPointer prepare_casting_update(const KernelRequest& request, KernelPointer update);

}  // namespace plimsoll
