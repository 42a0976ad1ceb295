// The gradient of an embedding: rows of the table sum the gradients of their tokens, in the order
// of the tokens. Tokens are sorted by id first, without atomics, so that equal runs give equal
// bits.
#include <algorithm>

#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

/// A token in the order of ids, then of tokens.
struct SortedToken {
  std::int32_t token, id;
};

constexpr std::int32_t kNoId = 0x7fffffff;  // larger than all

/// Counting sort by comparing every pair of tokens. For the block's tokens: how many of slice
/// blockIdx.y, which is `tiles` blocks of tokens long, come before each.
__global__ void count_before(int count, int tiles, const std::int32_t* ids, std::int32_t* before) {
  __shared__ std::int32_t tile[kThreads];
  const int i = int(global_thread()), own = int(blockIdx.x);
  const std::int32_t id = i < count ? ids[i] : 0;
  int smaller = 0;
  const int begin = int(blockIdx.y) * tiles;
  for (int other = begin; other < begin + tiles; ++other) {
    const int at = other * kThreads + int(threadIdx.x);
    __syncthreads();
    tile[threadIdx.x] = at < count ? ids[at] : kNoId;
    __syncthreads();
    // The earlier token of equal ids comes first.
    const std::int32_t bound = other < own ? id + 1 : id;
#pragma unroll 16
    for (int j = 0; j < kThreads; ++j) smaller += tile[j] < bound ? 1 : 0;
    if (other == own) {
      for (int j = 0; j < int(threadIdx.x); ++j) smaller += tile[j] == id ? 1 : 0;
    }
  }
  if (i < count) before[int(blockIdx.y) * count + i] = smaller;
}

__global__ void sort_tokens(int count, int slices, const std::int32_t* ids,
                            const std::int32_t* before, SortedToken* sorted) {
  const int i = int(global_thread());
  if (i >= count) return;
  int position = 0;
  for (int slice = 0; slice < slices; ++slice) position += before[slice * count + i];
  sorted[position] = {i, ids[i]};
}

constexpr int kLanes = 32, kMembers = 8;  // a block: 32 packs of columns, 8 tokens at once

/// A block for the run that starts at blockIdx.x, and for 32 packs of columns.
template <int kCount, class T>
__global__ void add_runs(const SortedToken* sorted, std::int64_t first_row, std::int64_t rows,
                         std::int64_t columns, const T* dx, DType type, void* table) {
  const int start = int(blockIdx.x), count = int(gridDim.x);
  const std::int32_t id = sorted[start].id;
  const std::int64_t row = id - first_row;
  if ((start > 0 && sorted[start - 1].id == id) || row < 0 || row >= rows) return;
  const int lane = int(threadIdx.x) % kLanes, member = int(threadIdx.x) / kLanes;
  const std::int64_t column = (std::int64_t(blockIdx.y) * kLanes + lane) * kCount;
  float sums[kCount] = {};
  if (column < columns) {
#pragma unroll 4
    for (int j = start + member; j < count && sorted[j].id == id; j += kMembers) {
      float values[kCount];
      load(dx + sorted[j].token * columns + column, values);
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
  // Blocks for all multiprocessors several times over, each with whole tiles of the others.
  const std::int64_t across = (tokens + kThreads - 1) / kThreads;
  const std::int64_t fitting = scratch.left() / (std::int64_t(tokens) * 4 + 256);
  const std::int64_t wanted = std::max<std::int64_t>(
      1, std::min({8 * std::int64_t(device.multiprocessors) / across, fitting, across}));
  const auto tiles = int((across + wanted - 1) / wanted);
  const auto slices = unsigned((across + tiles - 1) / tiles);
  std::int32_t* before = scratch.take_values<std::int32_t>(std::int64_t(slices) * tokens);
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    const std::int32_t* ids = input_at<std::int32_t>(in, 1);
    launch(device.stream, dim3(unsigned(across), slices), kThreads, 0, count_before, int(tokens),
           tiles, ids, before);
    launch(device.stream, unsigned(across), kThreads, 0, sort_tokens, int(tokens), int(slices), ids,
           static_cast<const std::int32_t*>(before), sorted);
    with_type(type, [&](auto zero) {
      using T = decltype(zero);
      const T* dx = input_at<T>(in, 0);
      const bool wide = aligned({dx}, columns * std::int64_t(sizeof(T)));
      const std::int64_t width = kLanes * (wide ? kPack<T> : 1);
      const dim3 grid(tokens, unsigned((columns + width - 1) / width));
      launch(device.stream, grid, kLanes * kMembers, 0,
             wide ? add_runs<kPack<T>, T> : add_runs<1, T>, sorted, first, rows, columns, dx,
             table_type, static_cast<void*>(out[0]));
    });
  });
}

}  // namespace plimsoll
