// Soft caps bound scores and logits smoothly: y = limit tanh(x / limit) (Gemma 2, arXiv 2408.00118,
// section 2).
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

/// x and y may be the same.
template <class T>
__global__ void cap(std::int64_t count, float limit, const T* x, T* y) {
  for (std::int64_t i = global_thread(); i < count; i += global_threads())
    y[i] = from_float<T>(limit * tanhf(to_float(x[i]) / limit));
}

template <class T>
__global__ void cap_backward(std::int64_t count, float limit, const T* dy, const T* y, T* dx) {
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) {
    const float share = to_float(y[i]) / limit;
    dx[i] = from_float<T>(to_float(dy[i]) * (1 - share * share));
  }
}

}  // namespace

CudaKernelPointer prepare_soft_cap(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const std::int64_t count = request.output_elements(0);
  const auto limit = float(request.params<CapParams>().limit);
  const DType type = request.output(0).dtype;
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    with_type(type, [&](auto zero) {
      using T = decltype(zero);
      launch(device.stream, blocks_for(device, count), kThreads, 0, cap<T>, count, limit,
             input_at<T>(in, 0), output_at<T>(out, 0));
    });
  });
}

CudaKernelPointer prepare_soft_cap_backward(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const std::int64_t count = request.output_elements(0);
  const auto limit = float(request.params<CapParams>().limit);
  const DType type = request.output(0).dtype;
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    with_type(type, [&](auto zero) {
      using T = decltype(zero);
      launch(device.stream, blocks_for(device, count), kThreads, 0, cap_backward<T>, count, limit,
             input_at<T>(in, 0), input_at<T>(in, 1), output_at<T>(out, 0));
    });
  });
}

}  // namespace plimsoll
