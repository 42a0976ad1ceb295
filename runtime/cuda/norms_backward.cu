// Layer norm and RMS norm backward. A block walks over rows and keeps the sums of its columns in
// registers; these are added up over blocks in a second stage of a fixed order.
#include <array>

#include "runtime/cuda/column_sums.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/norm_shape.h"
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

struct NormGradients {
  std::int64_t rows, columns;
  const void *dy, *x, *gamma;
  const float *means, *rstds;
  void* dx;
  float *scales, *shifts;  ///< [gridDim.x, columns]; null where none is trained
};

/// With n = (x - mean) rstd and g = dy gamma: dx = rstd (g - mean(g) - n mean(g n)), the first mean
/// only in layer norm; dgamma sums dy n, dbeta sums dy.
template <bool kCentered, int kCount, int kMostThreads, class T>
__global__ void __launch_bounds__(kMostThreads) norm_backward(NormGradients a) {
  constexpr int kPacks = kNormValues / kCount;
  const T *dys = static_cast<const T*>(a.dy), *xs = static_cast<const T*>(a.x);
  const T* gamma = static_cast<const T*>(a.gamma);
  float scales[kPacks][kCount] = {}, shifts[kCentered ? kPacks : 1][kCount] = {};
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    float dy[kPacks][kCount] = {}, normal[kPacks][kCount] = {};
    const float mean = kCentered ? a.means[row] : 0, rstd = a.rstds[row];
    float sum = 0, product = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const std::int64_t at = (threadIdx.x + p * blockDim.x) * kCount;
      if (at >= a.columns) continue;
      load(dys + row * a.columns + at, dy[p]);
      load(xs + row * a.columns + at, normal[p]);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        normal[p][i] = (normal[p][i] - mean) * rstd;
        scales[p][i] += dy[p][i] * normal[p][i];
        if (kCentered) shifts[p][i] += dy[p][i];
        if (gamma != nullptr) dy[p][i] *= to_float(gamma[at + i]);
        sum += dy[p][i];
        product += dy[p][i] * normal[p][i];
      }
    }
    const float scale = 1.0f / float(a.columns);
    const float mean_g = kCentered ? block_sum(sum) * scale : 0;
    const float mean_gn = block_sum(product) * scale;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const std::int64_t at = (threadIdx.x + p * blockDim.x) * kCount;
      if (at >= a.columns) continue;
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        dy[p][i] = rstd * (dy[p][i] - mean_g - normal[p][i] * mean_gn);
      store(static_cast<T*>(a.dx) + row * a.columns + at, dy[p]);
    }
  }
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const std::int64_t at = (threadIdx.x + p * blockDim.x) * kCount;
    if (at >= a.columns) continue;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (a.scales != nullptr) a.scales[blockIdx.x * a.columns + at + i] = scales[p][i];
      if (kCentered && a.shifts != nullptr)
        a.shifts[blockIdx.x * a.columns + at + i] = shifts[p][i];
    }
  }
}

template <bool kCentered, class T>
void launch_backward(const CudaDevice& device, unsigned blocks, const NormGradients& a) {
  const int threads = norm_threads(a.columns);
  const bool wide = aligned({a.dy, a.x, a.dx}, a.columns * std::int64_t(sizeof(T)));
  const auto start = [&](auto kernel) { launch(device.stream, blocks, threads, 0, kernel, a); };
  if (wide && threads > 512) return start(norm_backward<kCentered, kPack<T>, 1024, T>);
  INVARIANT(threads <= 512, "rows of a wide norm are not aligned");
  start(wide ? norm_backward<kCentered, kPack<T>, 512, T> : norm_backward<kCentered, 1, 512, T>);
}

template <bool kCentered>
CudaKernelPointer prepare(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const Shape& shape = request.input(1).shape;
  const std::size_t outputs = request.op.outputs.size(), statistics = request.op.inputs.size() - 1;
  const bool weighted = request.op.inputs.size() > 3, scaled = outputs > 1, shifted = outputs > 2;
  const std::int64_t columns = weighted ? elements(request.input(2).shape) : shape.back(),
                     rows = elements(shape) / columns;
  const DType type = request.input(1).dtype;
  const DType scale_type = request.output(scaled ? 1 : 0).dtype;
  const DType shift_type = request.output(shifted ? 2 : 0).dtype;
  const int threads = norm_threads(columns);
  DeviceScratch scratch(request);
  // Each block's sums are written and read again: they stay a small part of what is moved.
  const std::int64_t fitting = scratch.left() / (2 * columns * std::int64_t(sizeof(float)) + 512);
  const std::int64_t resident = device.multiprocessors * std::max(1, 512 / threads);
  const unsigned blocks = norm_blocks(rows, std::min({resident, fitting, (rows + 7) / 8}));
  float* scales = scaled ? scratch.take_values<float>(blocks * columns) : nullptr;
  float* shifts = shifted ? scratch.take_values<float>(blocks * columns) : nullptr;
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    const NormGradients arguments{rows,
                                  columns,
                                  in[0],
                                  in[1],
                                  weighted ? in[2] : nullptr,
                                  kCentered ? input_at<float>(in, 3) : nullptr,
                                  input_at<float>(in, statistics),
                                  out[0],
                                  scales,
                                  shifts};
    with_type(type, [&](auto zero) {
      launch_backward<kCentered, decltype(zero)>(device, blocks, arguments);
    });
    if (!scaled) return;
    const PartialSums of_scale{scales, scale_type, out[1]};
    if (shifted) {
      add_partial_sums(device, blocks, columns,
                       std::array{of_scale, PartialSums{shifts, shift_type, out[2]}});
    } else {
      add_partial_sums(device, blocks, columns, std::array{of_scale});
    }
  });
}

}  // namespace

CudaKernelPointer prepare_layer_norm_backward(const CudaRequest& request) {
  return prepare<true>(request);
}

CudaKernelPointer prepare_rms_norm_backward(const CudaRequest& request) {
  return prepare<false>(request);
}

}  // namespace plimsoll
