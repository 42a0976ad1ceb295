// Values of two operands are put side by side, or taken apart again. Where ranks share sequences,
// heads are exchanged, and attention over different keys is merged.
#include "runtime/attention_layout.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

/// Rows of `first` and of `second` words lie side by side in `joined`.
template <class Word, bool kJoins>
__global__ void exchange_parts(std::int64_t rows, std::int64_t first, std::int64_t second,
                               Word* joined, Word* a, Word* b) {
  const std::int64_t width = first + second;
  for (std::int64_t i = global_thread(); i < rows * width; i += global_threads()) {
    const std::int64_t row = i / width, column = i % width;
    Word& there = column < first ? a[row * first + column] : b[row * second + column - first];
    if (kJoins) {
      joined[i] = there;
    } else {
      there = joined[i];
    }
  }
}

/// y[row, rank, words] of x[rank, row, words], or the other way round.
template <class Word, bool kGroups>
__global__ void exchange_heads(std::int64_t ranks, std::int64_t rows, std::int64_t words,
                               const Word* x, Word* y) {
  for (std::int64_t i = global_thread(); i < ranks * rows * words; i += global_threads()) {
    const std::int64_t word = i % words, rank = i / words % ranks, row = i / words / ranks;
    const std::int64_t grouped = (rank * rows + row) * words + word;
    if (kGroups) {
      y[grouped] = x[i];
    } else {
      y[i] = x[grouped];
    }
  }
}

template <bool kJoins>
CudaKernelPointer prepare_parts(const CudaRequest& request, std::int64_t rows, const Tensor& a,
                                const Tensor& b) {
  const CudaDevice& device = request.device;
  const std::int64_t first = bytes_of(a).count() / rows, second = bytes_of(b).count() / rows;
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    std::byte* const joined = kJoins ? out[0] : in[0];
    const DeviceAddresses parts = kJoins ? in : out;
    const bool wide = aligned({joined, parts[0], parts[1]}, first) && second % 16 == 0;
    with_word(wide, [&](auto word) {
      using Word = decltype(word);
      constexpr auto kSize = std::int64_t(sizeof(Word));
      launch(device.stream, blocks_for(device, rows * (first + second) / kSize), kThreads, 0,
             exchange_parts<Word, kJoins>, rows, first / kSize, second / kSize,
             reinterpret_cast<Word*>(joined), reinterpret_cast<Word*>(parts[0]),
             reinterpret_cast<Word*>(parts[1]));
    });
  });
}

template <bool kGroups>
CudaKernelPointer prepare_groups(const CudaRequest& request, const Tensor& plain,
                                 const Tensor& grouped) {
  const CudaDevice& device = request.device;
  const std::int64_t ranks = grouped.shape[0] / plain.shape[0];
  const std::int64_t rows = plain.shape[0] * (plain.shape.size() == 4 ? plain.shape[1] : 1);
  const std::int64_t bytes = bytes_of(plain).count() / (ranks * rows);
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    with_word(aligned({in[0], out[0]}, bytes), [&](auto word) {
      using Word = decltype(word);
      const std::int64_t words = bytes / std::int64_t(sizeof(Word));
      launch(device.stream, blocks_for(device, ranks * rows * words), kThreads, 0,
             exchange_heads<Word, kGroups>, ranks, rows, words,
             reinterpret_cast<const Word*>(in[0]), reinterpret_cast<Word*>(out[0]));
    });
  });
}

struct MergeShape {
  std::int64_t rows, tokens, heads, depth;
};

/// A warp for each token and head. Each part weighs as much as its sum of exponentials; a part of
/// which a query sees no key has minus infinity for it, and weighs nothing.
template <class T>
__global__ void merge(MergeShape s, const T* a, const float* of_a, const T* b, const float* of_b,
                      T* y, float* total) {
  const int lane = int(threadIdx.x) % 32;
  for (std::int64_t i = global_thread() / 32; i < s.rows * s.heads; i += global_threads() / 32) {
    const std::int64_t row = i / s.heads, head = i % s.heads;
    const std::int64_t at = (row / s.tokens * s.heads + head) * s.tokens + row % s.tokens;
    const float most = fmaxf(of_a[at], of_b[at]);
    const float base = most == kMinusInfinity ? 0 : most;
    const float ea = expf(of_a[at] - base), eb = expf(of_b[at] - base), sum = ea + eb;
    const float share = sum > 0 ? 1 / sum : 0;
    for (std::int64_t j = i * s.depth + lane; j < (i + 1) * s.depth; j += 32)
      y[j] = from_float<T>(ea * share * to_float(a[j]) + eb * share * to_float(b[j]));
    if (lane == 0) total[at] = sum > 0 ? base + logf(sum) : kMinusInfinity;
  }
}

}  // namespace

CudaKernelPointer prepare_split_parts(const CudaRequest& request) {
  return prepare_parts<false>(request, rows_of_parts(request.input(0), request.output(0)),
                              request.output(0), request.output(1));
}

CudaKernelPointer prepare_join_parts(const CudaRequest& request) {
  return prepare_parts<true>(request, rows_of_parts(request.output(0), request.input(0)),
                             request.input(0), request.input(1));
}

// The second part has a row for each token.
CudaKernelPointer prepare_join_tokens(const CudaRequest& request) {
  return prepare_parts<true>(request, request.input(1).shape[0], request.input(0),
                             request.input(1));
}

CudaKernelPointer prepare_part_tokens(const CudaRequest& request) {
  return prepare_parts<false>(request, request.output(1).shape[0], request.output(0),
                              request.output(1));
}

CudaKernelPointer prepare_group_heads(const CudaRequest& request) {
  return prepare_groups<true>(request, request.input(0), request.output(0));
}

CudaKernelPointer prepare_ungroup_heads(const CudaRequest& request) {
  return prepare_groups<false>(request, request.output(0), request.input(0));
}

CudaKernelPointer prepare_merge_attention(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const Shape &y = request.input(0).shape, &sums = request.input(1).shape;
  const std::int64_t tokens = y[0] / sums[0], heads = sums[1] * sums[2] / tokens;
  const MergeShape shape{y[0], tokens, heads, y[1] / heads};
  return make_typed_kernel(request.input(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    launch(device.stream, blocks_for(device, shape.rows * shape.heads * 32), kThreads, 0, merge<T>,
           shape, input_at<T>(in, 0), input_at<float>(in, 1), input_at<T>(in, 2),
           input_at<float>(in, 3), output_at<T>(out, 0), output_at<float>(out, 1));
  });
}

}  // namespace plimsoll
