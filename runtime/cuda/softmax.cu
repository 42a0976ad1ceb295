// Softmax over rows of scores and its backward, for attention whose scores are in memory. A block
// per row, which stays in the first cache between its passes.
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

/// kCount divides `columns`. Causal: columns above the row's position in its sequence give 0, and
/// so do those that are not among the last `window` ones up to it, or with `chunks` not in its
/// chunk of so many.
template <int kCount, class T>
__global__ void softmax(std::int64_t rows, std::int64_t columns, bool causal, std::int64_t window,
                        bool chunks, const T* scores, T* p) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* from = scores + row * columns;
    const std::int64_t visible = causal ? row % columns + 1 : columns;
    const std::int64_t of_window = visible > window ? visible - window : 0;
    const std::int64_t begin = !causal ? 0 : chunks ? (visible - 1) / window * window : of_window;
    float most = kMinusInfinity;
    for (std::int64_t at = threadIdx.x * kCount; at < visible; at += blockDim.x * kCount) {
      float values[kCount];
      load(from + at, values);
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        most = at + i >= begin && at + i < visible ? larger(most, values[i]) : most;
    }
    most = block_max(most);
    float sum = 0;
    for (std::int64_t at = threadIdx.x * kCount; at < visible; at += blockDim.x * kCount) {
      float values[kCount];
      load(from + at, values);
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        sum += at + i >= begin && at + i < visible ? __expf(values[i] - most) : 0;
    }
    const float scale = 1.0f / block_sum(sum);
    for (std::int64_t at = threadIdx.x * kCount; at < columns; at += blockDim.x * kCount) {
      float values[kCount] = {};
      if (at < visible) load(from + at, values);
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        values[i] = at + i >= begin && at + i < visible ? __expf(values[i] - most) * scale : 0;
      store(p + row * columns + at, values);
    }
  }
}

/// dscores = p (dp - sum of p dp). Where a key is not seen p is 0, and so are the products.
template <int kCount, class T>
__global__ void softmax_backward(std::int64_t rows, std::int64_t columns, const T* dp, const T* p,
                                 T* dscores) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t first = row * columns;
    float sum = 0;
    for (std::int64_t at = threadIdx.x * kCount; at < columns; at += blockDim.x * kCount) {
      float slopes[kCount], values[kCount];
      load(dp + first + at, slopes);
      load(p + first + at, values);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum += slopes[i] * values[i];
    }
    sum = block_sum(sum);
    for (std::int64_t at = threadIdx.x * kCount; at < columns; at += blockDim.x * kCount) {
      float slopes[kCount], values[kCount];
      load(dp + first + at, slopes);
      load(p + first + at, values);
#pragma unroll
      for (int i = 0; i < kCount; ++i) values[i] *= slopes[i] - sum;
      store(dscores + first + at, values);
    }
  }
}

/// Threads for one row, and blocks for all.
struct RowLaunch {
  int threads;
  unsigned blocks;
  RowLaunch(const CudaDevice& device, std::int64_t rows, std::int64_t packs)
      : threads(int(std::clamp<std::int64_t>((packs + 31) / 32 * 32, 32, kThreads))),
        blocks(blocks_for(device, rows * threads, threads)) {}
};

}  // namespace

CudaKernelPointer prepare_softmax(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const std::int64_t columns = request.input(0).shape.back();
  const std::int64_t rows = request.input_elements(0) / columns;
  const auto& params = request.params<AttentionParams>();
  const bool causal = params.causal;
  const std::int64_t window = params.window > 0 ? params.window : columns;
  const bool chunks = params.chunks;
  const DType type = request.input(0).dtype;
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    with_type(type, [&](auto zero) {
      using T = decltype(zero);
      const T* scores = input_at<T>(in, 0);
      T* p = output_at<T>(out, 0);
      const bool wide = aligned({scores, p}, columns * std::int64_t(sizeof(T)));
      const RowLaunch size(device, rows, columns / (wide ? kPack<T> : 1));
      launch(device.stream, size.blocks, size.threads, 0,
             wide ? softmax<kPack<T>, T> : softmax<1, T>, rows, columns, causal, window, chunks,
             scores, p);
    });
  });
}

CudaKernelPointer prepare_softmax_backward(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const std::int64_t columns = request.input(0).shape.back();
  const std::int64_t rows = request.input_elements(0) / columns;
  const DType type = request.input(0).dtype;
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    with_type(type, [&](auto zero) {
      using T = decltype(zero);
      const T *dp = input_at<T>(in, 0), *p = input_at<T>(in, 1);
      T* dscores = output_at<T>(out, 0);
      const bool wide = aligned({dp, p, dscores}, columns * std::int64_t(sizeof(T)));
      const RowLaunch size(device, rows, columns / (wide ? kPack<T> : 1));
      launch(device.stream, size.blocks, size.threads, 0,
             wide ? softmax_backward<kPack<T>, T> : softmax_backward<1, T>, rows, columns, dp, p,
             dscores);
    });
  });
}

}  // namespace plimsoll
