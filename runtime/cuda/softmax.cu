// Softmax over rows of scores and its backward, for attention whose scores are in memory. A block
// per row, which stays in the first cache between its passes.
#include <array>

#include "runtime/cuda/column_sums.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/storage.h"
#include "runtime/sequence_part.h"

namespace plimsoll {

namespace {

/// The rows of one rank's heads, of which head h has the rows of each sequence, and what is added
/// to their scores and sums.
struct HeadRows {
  std::int64_t heads, first_head, alibi_heads;
  float alibi_scale;
  ExampleTable examples;  ///< a query sees no key of another one
  __device__ std::int64_t first_of_example(std::int64_t row, std::int64_t columns) const {
    return examples.reads() ? examples.begin(row / (heads * columns), row % columns) : 0;
  }
  __device__ std::int64_t head(std::int64_t row, std::int64_t columns) const {
    return row / columns % heads;
  }
  __device__ float slope(std::int64_t row, std::int64_t columns) const {
    return alibi_heads == 0
               ? 0
               : alibi_slope(first_head + head(row, columns), alibi_heads, alibi_scale);
  }
};

/// kCount divides `columns`. Null sinks: none. Causal: columns above the row's position in its
/// sequence give 0, and so do those that are not among the last `window` ones up to it, or with
/// `chunks` not in its chunk of so many.
template <int kCount, class T>
__global__ void softmax(std::int64_t rows, std::int64_t columns, bool causal, std::int64_t window,
                        bool chunks, HeadRows heads, const T* scores, const T* sinks, T* p) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* from = scores + row * columns;
    const std::int64_t visible = causal ? row % columns + 1 : columns;
    const std::int64_t example = causal ? heads.first_of_example(row, columns) : 0;
    const std::int64_t own = visible - example;  // keys of the example that are not behind it
    const std::int64_t of_window = own > window ? own - window : 0;
    const std::int64_t begin =
        !causal ? 0 : example + (chunks ? (own - 1) / window * window : of_window);
    const float slope = heads.slope(row, columns);
    const auto biased = [&](float score, std::int64_t key) {
      return slope == 0 ? score : score + slope * float(key - row % columns);
    };
    const float sink =
        sinks == nullptr ? kMinusInfinity : to_float(sinks[heads.head(row, columns)]);
    float most = kMinusInfinity;
    for (std::int64_t at = threadIdx.x * kCount; at < visible; at += blockDim.x * kCount) {
      float values[kCount];
      load(from + at, values);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (at + i >= begin && at + i < visible) most = larger(most, biased(values[i], at + i));
      }
    }
    most = larger(block_max(most), sink);
    float sum = 0;
    for (std::int64_t at = threadIdx.x * kCount; at < visible; at += blockDim.x * kCount) {
      float values[kCount];
      load(from + at, values);
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        sum += at + i >= begin && at + i < visible ? __expf(biased(values[i], at + i) - most) : 0;
    }
    const float scale = 1.0f / (block_sum(sum) + (sinks == nullptr ? 0 : __expf(sink - most)));
    for (std::int64_t at = threadIdx.x * kCount; at < columns; at += blockDim.x * kCount) {
      float values[kCount] = {};
      if (at < visible) load(from + at, values);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const bool seen = at + i >= begin && at + i < visible;
        values[i] = seen ? __expf(biased(values[i], at + i) - most) * scale : 0;
      }
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

/// A block per head sums -(1 - sum of p) (sum of p dp) over its rows, of which each sequence has
/// `columns`.
template <class T>
__global__ void sinks_gradient(std::int64_t rows, std::int64_t columns, std::int64_t heads,
                               const T* dp, const T* p, float* dsinks) {
  const std::int64_t head = blockIdx.x;
  float gradient = 0;
  for (std::int64_t row = head * columns; row < rows;
       row = row % columns + 1 < columns ? row + 1 : row + 1 + (heads - 1) * columns) {
    float sum = 0, product = 0;
    for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
      const float value = to_float(p[row * columns + i]);
      sum += value;
      product += value * to_float(dp[row * columns + i]);
    }
    gradient -= (1 - block_sum(sum)) * block_sum(product);
  }
  if (threadIdx.x == 0) dsinks[head] = gradient;
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
  const bool chunks = params.chunks, sunk = request.op.inputs.size() > 1;
  const std::int64_t own_heads = request.input(0).shape[1] * (request.input(0).shape[2] / columns);
  const HeadRows heads{own_heads, request.context.at[std::size_t(Axis::mp)] * own_heads,
                       params.alibi_heads, float(params.alibi_scale), device.examples};
  return make_typed_kernel(request.input(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    const T* scores = input_at<T>(in, 0);
    T* p = output_at<T>(out, 0);
    const bool wide = aligned({scores, p}, columns * std::int64_t(sizeof(T)));
    const RowLaunch size(device, rows, columns / (wide ? kPack<T> : 1));
    launch(device.stream, size.blocks, size.threads, 0, wide ? softmax<kPack<T>, T> : softmax<1, T>,
           rows, columns, causal, window, chunks, heads, scores,
           sunk ? input_at<T>(in, 1) : nullptr, p);
  });
}

CudaKernelPointer prepare_softmax_sinks_gradient(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const std::int64_t columns = request.input(0).shape.back();
  const std::int64_t rows = request.input_elements(0) / columns;
  const std::int64_t heads = request.output_elements(0);
  const DType type = request.input(0).dtype, target = request.output(0).dtype;
  DeviceScratch scratch(request);
  float* sums = scratch.take_values<float>(heads);
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    with_type(type, [&](auto zero) {
      using T = decltype(zero);
      launch(device.stream, unsigned(heads), kThreads, 0, sinks_gradient<T>, rows, columns, heads,
             input_at<T>(in, 0), input_at<T>(in, 1), sums);
    });
    add_partial_sums(device, 1, heads, std::array{PartialSums{sums, target, out[0]}});
  });
}

CudaKernelPointer prepare_softmax_backward(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const std::int64_t columns = request.input(0).shape.back();
  const std::int64_t rows = request.input_elements(0) / columns;
  return make_typed_kernel(request.input(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    const T *dp = input_at<T>(in, 0), *p = input_at<T>(in, 1);
    T* dscores = output_at<T>(out, 0);
    const bool wide = aligned({dp, p, dscores}, columns * std::int64_t(sizeof(T)));
    const RowLaunch size(device, rows, columns / (wide ? kPack<T> : 1));
    launch(device.stream, size.blocks, size.threads, 0,
           wide ? softmax_backward<kPack<T>, T> : softmax_backward<1, T>, rows, columns, dp, p,
           dscores);
  });
}

}  // namespace plimsoll
