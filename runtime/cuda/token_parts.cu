// The values of a token from two operands are put side by side, or taken apart again.
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

/// Values of one token in each part; b has a row for each token.
struct TokenParts {
  std::int64_t tokens, a, b;
  TokenParts(const Tensor& first, const Tensor& second)
      : tokens(second.shape[0]),
        a(elements(first.shape) / tokens),
        b(elements(second.shape) / tokens) {}
  __host__ __device__ std::int64_t all() const { return tokens * (a + b); }
};

template <class T>
__global__ void join_tokens(TokenParts s, const T* a, const T* b, T* whole) {
  for (std::int64_t i = global_thread(); i < s.all(); i += global_threads()) {
    const std::int64_t token = i / (s.a + s.b), column = i % (s.a + s.b);
    whole[i] = column < s.a ? a[token * s.a + column] : b[token * s.b + column - s.a];
  }
}

template <class T>
__global__ void part_tokens(TokenParts s, const T* whole, T* a, T* b) {
  for (std::int64_t i = global_thread(); i < s.all(); i += global_threads()) {
    const std::int64_t token = i / (s.a + s.b), column = i % (s.a + s.b);
    (column < s.a ? a[token * s.a + column] : b[token * s.b + column - s.a]) = whole[i];
  }
}

}  // namespace

CudaKernelPointer prepare_join_tokens(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const TokenParts s(request.input(0), request.input(1));
  const DType type = request.input(0).dtype;
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    with_type(type, [&](auto zero) {
      using T = decltype(zero);
      launch(device.stream, blocks_for(device, s.all()), kThreads, 0, join_tokens<T>, s,
             input_at<T>(in, 0), input_at<T>(in, 1), output_at<T>(out, 0));
    });
  });
}

CudaKernelPointer prepare_part_tokens(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const TokenParts s(request.output(0), request.output(1));
  const DType type = request.input(0).dtype;
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    with_type(type, [&](auto zero) {
      using T = decltype(zero);
      launch(device.stream, blocks_for(device, s.all()), kThreads, 0, part_tokens<T>, s,
             input_at<T>(in, 0), output_at<T>(out, 0), output_at<T>(out, 1));
    });
  });
}

}  // namespace plimsoll
