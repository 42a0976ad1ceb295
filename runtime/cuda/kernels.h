// What the families of CUDA kernels share: the request. Internal to runtime/cuda.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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
  const CudaDevice& device;

  const Tensor& input(std::size_t i) const { return tensors[op.inputs[i].index()]; }
  const Tensor& output(std::size_t i) const { return tensors[op.outputs[i].index()]; }
  std::int64_t input_elements(std::size_t i) const { return elements(input(i).shape); }
  std::int64_t output_elements(std::size_t i) const { return elements(output(i).shape); }
  template <class Params>
  const Params& params() const {
    return std::get<Params>(op.params);
  }
};

}  // namespace plimsoll
