// Layer norm (Ba et al. 2016, arXiv 1607.06450) and RMS norm (Zhang and Sennrich 2019, arXiv
// 1910.07467) forward: a block holds a row in registers, so it is read once.
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/norm_shape.h"
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

/// kCentered: layer norm. Null gamma is 1, and null beta 0. Thread t has the packs t, t +
/// blockDim.x, ...
template <bool kCentered, int kCount, class T>
__global__ void __launch_bounds__(1024)
    norm(std::int64_t rows, std::int64_t columns, float epsilon, const T* x, const T* gamma,
         const T* beta, T* y, float* means, float* rstds) {
  constexpr int kPacks = kNormValues / kCount;
  float scale[kPacks][kCount], shift[kPacks][kCount];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const std::int64_t at = (threadIdx.x + p * blockDim.x) * kCount;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {  // may lie unaligned in the arena of parameters
      const bool there = at + i < columns;
      scale[p][i] = !there ? 0 : gamma == nullptr ? 1 : to_float(gamma[at + i]);
      shift[p][i] = there && beta != nullptr ? to_float(beta[at + i]) : 0;
    }
  }
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    float values[kPacks][kCount] = {}, sum = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const std::int64_t at = (threadIdx.x + p * blockDim.x) * kCount;
      if (at >= columns) continue;
      load(x + row * columns + at, values[p]);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum += values[p][i];
    }
    const float mean = kCentered ? block_sum(sum) / float(columns) : 0;
    float squares = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if ((threadIdx.x + p * blockDim.x) * kCount >= columns) continue;
#pragma unroll
      for (int i = 0; i < kCount; ++i) squares += (values[p][i] - mean) * (values[p][i] - mean);
    }
    const float rstd = 1.0f / sqrtf(block_sum(squares) / float(columns) + epsilon);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const std::int64_t at = (threadIdx.x + p * blockDim.x) * kCount;
      if (at >= columns) continue;
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        values[p][i] = (values[p][i] - mean) * rstd * scale[p][i] + shift[p][i];
      store(y + row * columns + at, values[p]);
    }
    if (threadIdx.x == 0) {
      if (kCentered) means[row] = mean;
      rstds[row] = rstd;
    }
  }
}

template <bool kCentered>
CudaKernelPointer prepare(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const Shape& shape = request.input(0).shape;
  const std::size_t inputs = request.op.inputs.size();
  const std::int64_t columns = inputs > 1 ? elements(request.input(1).shape) : shape.back(),
                     rows = elements(shape) / columns;
  const auto epsilon = float(request.params<NormParams>().epsilon);
  const int threads = norm_threads(columns);
  const unsigned blocks = norm_blocks(rows, device.multiprocessors * (2048 / threads));
  return make_typed_kernel(request.input(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    const T* x = input_at<T>(in, 0);
    T* y = output_at<T>(out, 0);
    const T* gamma = inputs > 1 ? input_at<T>(in, 1) : nullptr;
    const T* beta = inputs > 2 ? input_at<T>(in, 2) : nullptr;
    float* means = kCentered ? output_at<float>(out, 1) : nullptr;
    float* rstds = output_at<float>(out, kCentered ? 2 : 1);
    const bool wide = aligned({x, y}, columns * std::int64_t(sizeof(T)));
    launch(device.stream, blocks, threads, 0,
           wide ? norm<kCentered, kPack<T>, T> : norm<kCentered, 1, T>, rows, columns, epsilon, x,
           gamma, beta, y, means, rstds);
  });
}

}  // namespace

CudaKernelPointer prepare_layer_norm(const CudaRequest& request) { return prepare<true>(request); }

CudaKernelPointer prepare_rms_norm(const CudaRequest& request) { return prepare<false>(request); }

}  // namespace plimsoll
