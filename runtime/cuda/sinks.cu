// Attention sinks on the results of a kernel whose scores are not in memory.
// runtime/cpu/attention/sinks.cpp has the formulas and their sources.
#include <array>

#include "runtime/cuda/column_sums.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

/// Results [n,a*d] of attention and their sums [b,a,s].
struct SunkRows {
  std::int64_t tokens, heads, depth, sequence;
  SunkRows(const Tensor& y, const Tensor& sums, const Tensor& sinks)
      : tokens(y.shape[0]),
        heads(elements(sinks.shape)),
        depth(y.shape[1] / heads),
        sequence(tokens / sums.shape[0]) {}
  __device__ std::int64_t statistic(std::int64_t token, std::int64_t head) const {
    return (token / sequence * heads + head) * sequence + token % sequence;
  }
};

/// A warp per token and head. y may be x.
template <class T>
__global__ void sink_rows(SunkRows s, const T* x, const float* sums, const T* sinks, T* y,
                          float* total_sums) {
  const std::int64_t lane = threadIdx.x % 32;
  for (std::int64_t row = global_thread() / 32; row < s.tokens * s.heads;
       row += global_threads() / 32) {
    const std::int64_t token = row / s.heads, head = row % s.heads;
    const float sum = sums[s.statistic(token, head)], sink = to_float(sinks[head]);
    const float most = fmaxf(sum, sink);
    const float total = most + logf(expf(sum - most) + expf(sink - most));
    const float share = expf(sum - total);
    const std::int64_t first = row * s.depth;
    for (std::int64_t i = first + lane; i < first + s.depth; i += 32)
      y[i] = from_float<T>(to_float(x[i]) * share);
    if (lane == 0) total_sums[s.statistic(token, head)] = total;
  }
}

/// A block per head, of which a thread has every blockDim.x-th token.
template <class T>
__global__ void sum_sinks(SunkRows s, const T* dy, const T* y, const float* total_sums,
                          const T* sinks, float* dsinks) {
  const std::int64_t head = blockIdx.x;
  const float sink = to_float(sinks[head]);
  float gradient = 0;
  for (std::int64_t token = threadIdx.x; token < s.tokens; token += blockDim.x) {
    const std::int64_t first = (token * s.heads + head) * s.depth;
    float product = 0;
    for (std::int64_t i = first; i < first + s.depth; ++i)
      product += to_float(dy[i]) * to_float(y[i]);
    gradient -= expf(sink - total_sums[s.statistic(token, head)]) * product;
  }
  gradient = block_sum(gradient);
  if (threadIdx.x == 0) dsinks[head] = gradient;
}

}  // namespace

CudaKernelPointer prepare_add_sinks(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const SunkRows s(request.input(0), request.input(1), request.input(2));
  return make_typed_kernel(request.input(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    launch(device.stream, blocks_for(device, s.tokens * s.heads * 32), kThreads, 0, sink_rows<T>, s,
           input_at<T>(in, 0), input_at<float>(in, 1), input_at<T>(in, 2), output_at<T>(out, 0),
           output_at<float>(out, 1));
  });
}

CudaKernelPointer prepare_sinks_gradient(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const SunkRows s(request.input(1), request.input(2), request.input(3));
  const DType type = request.input(0).dtype, target = request.output(0).dtype;
  DeviceScratch scratch(request);
  float* sums = scratch.take_values<float>(s.heads);
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    with_type(type, [&](auto zero) {
      using T = decltype(zero);
      launch(device.stream, unsigned(s.heads), kThreads, 0, sum_sinks<T>, s, input_at<T>(in, 0),
             input_at<T>(in, 1), input_at<float>(in, 2), input_at<T>(in, 3), sums);
    });
    add_partial_sums(device, 1, s.heads, std::array{PartialSums{sums, target, out[0]}});
  });
}

}  // namespace plimsoll
