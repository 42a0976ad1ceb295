// The gradient of an embedding: rows of the table sum the gradients of their tokens, in the order
// of the tokens. Tokens are sorted by id first, without atomics, so that equal runs give equal
// bits.
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

/// A token in the order of ids, then of tokens.
struct SortedToken {
  std::int32_t token;
  std::int32_t run;  ///< tokens of the same id, at the first of them; else 0
};

/// Counting sort by comparing every pair of tokens: n^2 / 2 comparisons of numbers in shared
/// memory, little against the rows that are added up after it.
__global__ void sort_tokens(int count, const std::int32_t* ids, SortedToken* sorted) {
  __shared__ std::int32_t tile[kThreads];
  const int i = int(global_thread());
  const std::int32_t id = i < count ? ids[i] : 0;
  int smaller = 0, before = 0, same = 0;
  for (int first = 0; first < count; first += kThreads) {
    __syncthreads();
    if (first + int(threadIdx.x) < count) tile[threadIdx.x] = ids[first + threadIdx.x];
    __syncthreads();
    const int end = count - first < kThreads ? count - first : kThreads;
    for (int j = 0; j < end; ++j) {
      smaller += tile[j] < id ? 1 : 0;
      same += tile[j] == id ? 1 : 0;
      before += tile[j] == id && first + j < i ? 1 : 0;
    }
  }
  if (i < count) sorted[smaller + before] = {i, before == 0 ? same : 0};
}

constexpr int kLanes = 32, kMembers = 8;  // a block: 32 packs of columns, 8 tokens at once

/// A block for the run that starts at blockIdx.x, and for 32 packs of columns.
template <int kCount, class T>
__global__ void add_runs(const std::int32_t* ids, const SortedToken* sorted, std::int64_t first_row,
                         std::int64_t rows, std::int64_t columns, const T* dx, DType type,
                         void* table) {
  const SortedToken start = sorted[blockIdx.x];
  const std::int64_t row = ids[start.token] - first_row;
  if (start.run == 0 || row < 0 || row >= rows) return;
  const int lane = int(threadIdx.x) % kLanes, member = int(threadIdx.x) / kLanes;
  const std::int64_t column = (std::int64_t(blockIdx.y) * kLanes + lane) * kCount;
  float sums[kCount] = {};
  if (column < columns) {
#pragma unroll 4
    for (int j = member; j < start.run; j += kMembers) {
      float values[kCount];
      load(dx + sorted[blockIdx.x + j].token * columns + column, values);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sums[i] += values[i];
    }
  }
  __shared__ float of_members[kMembers][kLanes * kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) of_members[member][lane * kCount + i] = sums[i];
  __syncthreads();
  const std::int64_t first = std::int64_t(blockIdx.y) * kLanes * kCount;
  for (int i = int(threadIdx.x); i < kLanes * kCount && first + i < columns; i += int(blockDim.x)) {
    float sum = 0;
#pragma unroll
    for (int other = 0; other < kMembers; ++other) sum += of_members[other][i];
    const std::int64_t at = row * columns + first + i;
    store_any(type, table, at, load_any(type, table, at) + sum);
  }
}

}  // namespace

CudaKernelPointer prepare_embedding_backward(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const Tensor& table = request.output(0);
  const std::int64_t rows = table.shape[0], columns = table.shape[1];
  const bool split = request.params<VocabularyParams>().split_degree > 1;
  const std::int64_t first = split ? request.context.at[std::size_t(Axis::mp)] * rows : 0;
  const auto tokens = unsigned(request.input_elements(1));
  const DType type = request.input(0).dtype, table_type = table.dtype;
  DeviceScratch scratch(request);
  SortedToken* sorted = scratch.take_values<SortedToken>(tokens);
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    const std::int32_t* ids = input_at<std::int32_t>(in, 1);
    launch(device.stream, (tokens + kThreads - 1) / kThreads, kThreads, 0, sort_tokens, int(tokens),
           ids, sorted);
    with_type(type, [&](auto zero) {
      using T = decltype(zero);
      const T* dx = input_at<T>(in, 0);
      const bool wide = aligned({dx}, columns * std::int64_t(sizeof(T)));
      const std::int64_t width = kLanes * (wide ? kPack<T> : 1);
      const dim3 grid(tokens, unsigned((columns + width - 1) / width));
      launch(device.stream, grid, kLanes * kMembers, 0,
             wide ? add_runs<kPack<T>, T> : add_runs<1, T>, ids, sorted, first, rows, columns, dx,
             table_type, static_cast<void*>(out[0]));
    });
  });
}

}  // namespace plimsoll
