// Kernels sum columns of groups of rows, and then the groups.
#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "runtime/batch_place.h"
#include "runtime/cuda/column_sums.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

constexpr int kLanes = 32, kRowsAtOnce = 8;           // a block: 32 packs of columns x 8 rows
constexpr std::int64_t kLeastRows = 4 * kRowsAtOnce;  // of a group: fewer are not worth a block

/// Sums group blockIdx.y of the rows. One group: added to the target; several: to partial.
template <int kCount, class T>
__global__ void sum_columns(SummedRows rows, std::int64_t columns, const T* x, float* partial,
                            DType target_type, void* target) {
  const int lane = int(threadIdx.x) % kLanes, member = int(threadIdx.x) / kLanes;
  const std::int64_t column = (std::int64_t(blockIdx.x) * kLanes + lane) * kCount;
  float sums[kCount] = {};
  if (column < columns) {
    const std::int64_t step = std::int64_t(gridDim.y) * kRowsAtOnce;
#pragma unroll 4
    for (std::int64_t j = std::int64_t(blockIdx.y) * kRowsAtOnce + member; j < rows.count;
         j += step) {
      // All rows, or 32-bit divisions: rows are counted in ints.
      const std::int64_t row = rows.run == rows.count
                                   ? rows.begin + j
                                   : rows.begin + unsigned(j) / unsigned(rows.run) * rows.stride +
                                         unsigned(j) % unsigned(rows.run);
      float values[kCount];
      load(x + row * columns + column, values);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sums[i] += values[i];
    }
  }
  __shared__ float of_members[kRowsAtOnce][kLanes * kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) of_members[member][lane * kCount + i] = sums[i];
  __syncthreads();
  const std::int64_t first = std::int64_t(blockIdx.x) * kLanes * kCount;
  for (int i = int(threadIdx.x); i < kLanes * kCount && first + i < columns; i += int(blockDim.x)) {
    float sum = 0;
#pragma unroll
    for (int other = 0; other < kRowsAtOnce; ++other) sum += of_members[other][i];
    if (gridDim.y > 1) {
      partial[blockIdx.y * columns + first + i] = sum;
    } else {
      store_any(target_type, target, first + i, load_any(target_type, target, first + i) + sum);
    }
  }
}

template <int kCount>
unsigned column_blocks(std::int64_t columns) {
  return unsigned((columns + kLanes * kCount - 1) / (kLanes * kCount));
}

constexpr int kGroupsAtOnce = 32;  // a block: 32 columns x 32 groups

struct PartialPair {
  PartialSums of[2];
};

/// Array blockIdx.y: adds up the groups' sums.
__global__ void __launch_bounds__(kLanes* kGroupsAtOnce)
    add_groups(int groups, std::int64_t columns, PartialPair arrays) {
  const PartialSums& sums = arrays.of[blockIdx.y];
  const int lane = int(threadIdx.x) % kLanes, member = int(threadIdx.x) / kLanes;
  const std::int64_t column = std::int64_t(blockIdx.x) * kLanes + lane;
  float sum = 0;
  if (column < columns) {
    const float* at = sums.partial + member * columns + column;
#pragma unroll 4
    for (int group = member; group < groups; group += kGroupsAtOnce) {
      sum += *at;
      at += kGroupsAtOnce * columns;
    }
  }
  __shared__ float of_members[kGroupsAtOnce][kLanes + 1];
  __shared__ float totals[kLanes];
  of_members[member][lane] = sum;
  __syncthreads();
  const float total = warp_sum(of_members[lane][member]);  // of column `member`
  if (lane == 0) totals[member] = total;
  __syncthreads();
  if (member > 0 || column >= columns) return;
  store_any(sums.type, sums.target, column,
            load_any(sums.type, sums.target, column) + totals[lane]);
}

}  // namespace

ColumnSums::ColumnSums(const CudaDevice& device, const SummedRows& rows, std::int64_t columns,
                       DType type, DType target, DeviceScratch& scratch)
    : device_(&device), rows_(rows), columns_(columns), type_(type), target_(target) {
  INVARIANT(rows.count <= std::int64_t{1} << 31, "rows are counted in ints");
  const std::int64_t pack = type == DType::f32 ? 4 : 8;
  const std::int64_t across = (columns + kLanes * pack - 1) / (kLanes * pack);
  const std::int64_t wanted = (8 * device.multiprocessors + across - 1) / across;
  const std::int64_t fitting = scratch.left() / (columns * std::int64_t(sizeof(float)) + 256);
  groups_ = std::min({wanted, fitting, rows.count / kLeastRows, std::int64_t{256}});
  groups_ = std::max<std::int64_t>(groups_, 1);
  if (groups_ > 1) partial_ = scratch.take_values<float>(groups_ * columns);
}

void ColumnSums::run(const std::byte* x, std::byte* target) const {
  with_type(type_, [&](auto zero) {
    using T = decltype(zero);
    const bool wide = aligned({x}, columns_ * std::int64_t(sizeof(T)));
    const dim3 grid(wide ? column_blocks<kPack<T>>(columns_) : column_blocks<1>(columns_),
                    unsigned(groups_));
    launch(device_->stream, grid, kLanes * kRowsAtOnce, 0,
           wide ? sum_columns<kPack<T>, T> : sum_columns<1, T>, rows_, columns_,
           reinterpret_cast<const T*>(x), partial_, target_, static_cast<void*>(target));
  });
  if (groups_ > 1)
    add_partial_sums(*device_, groups_, columns_,
                     std::array{PartialSums{partial_, target_, target}});
}

void add_partial_sums(const CudaDevice& device, std::int64_t groups, std::int64_t columns,
                      std::span<const PartialSums> arrays) {
  PartialPair pair = {};
  INVARIANT(!arrays.empty() && arrays.size() <= std::size(pair.of), "one or two arrays");
  std::ranges::copy(arrays, pair.of);
  launch(device.stream, dim3(column_blocks<1>(columns), unsigned(arrays.size())),
         kLanes * kGroupsAtOnce, 0, add_groups, int(groups), columns, pair);
}

CudaKernelPointer prepare_bias_gradient(const CudaRequest& request) {
  const std::int64_t columns = request.output_elements(0);
  DeviceScratch scratch(request);
  const ColumnSums sums(request.device, SummedRows::all(request.input_elements(0) / columns),
                        columns, request.input(0).dtype, request.output(0).dtype, scratch);
  return make_cuda_kernel(
      [sums](DeviceAddresses in, DeviceAddresses out) { sums.run(in[0], out[0]); });
}

namespace {

/// A block adds to a row of the table the rows of dy whose tokens are as far from the start of
/// their example, in order.
template <class T>
__global__ void sum_positions(SequencePart part, std::int64_t sequences, std::int64_t columns,
                              ExampleTable examples, const T* dy, DType target, void* table) {
  const std::int64_t row = blockIdx.x;
  for (std::int64_t column = threadIdx.x; column < columns; column += blockDim.x) {
    float sum = 0;
    for (std::int64_t of = 0; of < sequences; ++of) {
      for (std::int64_t begin = 0, end; begin < examples.sequence; begin = end) {
        end = examples.end(of, begin);
        const std::int64_t position = begin + row;
        if (position >= end) continue;
        const std::int64_t token = examples.before(part, of, position);
        if (token < part.tokens && examples.position(part, of, token) == position)
          sum += to_float(dy[(of * part.tokens + token) * columns + column]);
      }
    }
    const std::int64_t at = row * columns + column;
    store_any(target, table, at, load_any(target, table, at) + sum);
  }
}

CudaKernelPointer prepare_position_sums(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const Shape& table = request.output(0).shape;
  SequencePart part = own_tokens(request.context, 0);
  part.tokens = table[0] / part.ranks;
  const std::int64_t columns = table[1];
  const std::int64_t sequences = request.input_elements(0) / (part.tokens * columns);
  const DType target = request.output(0).dtype;
  return make_typed_kernel(request.input(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    launch(device.stream, unsigned(table[0]), kThreads, 0, sum_positions<T>, part, sequences,
           columns, device.examples, input_at<T>(in, 0), target, static_cast<void*>(out[0]));
  });
}

}  // namespace

// Sequences are rows of all their positions; where ranks share them, each has two chunks, which are
// rows of their own.
CudaKernelPointer prepare_position_add_backward(const CudaRequest& request) {
  SequencePart part = own_tokens(request.context, 0);
  if (request.device.examples.reads()) return prepare_position_sums(request);
  if (part.ranks == 1) return prepare_bias_gradient(request);
  const Shape& table = request.output(0).shape;
  part.tokens = table[0] / part.ranks;
  const std::int64_t chunk = part.chunk() * table[1];
  const std::int64_t sequences = request.input_elements(0) / (2 * chunk);
  const DType target = request.output(0).dtype;
  DeviceScratch scratch(request);
  std::vector<ColumnSums> sums;
  std::vector<std::int64_t> to;
  for (const std::int64_t half : {0, 1}) {
    DeviceScratch own = scratch;  // they run one after the other
    sums.emplace_back(request.device, SummedRows{sequences, 1, 2, half}, chunk,
                      request.input(0).dtype, target, own);
    to.push_back(part.position(half * part.chunk()) * table[1] * bytes_of(target).count());
  }
  return make_cuda_kernel([sums, to](DeviceAddresses in, DeviceAddresses out) {
    for (std::size_t half = 0; half < sums.size(); ++half) sums[half].run(in[0], out[0] + to[half]);
  });
}

CudaKernelPointer prepare_token_type_add_backward(const CudaRequest& request) {
  const Shape &dy = request.input(0).shape, &table = request.output(0).shape;
  const std::int64_t rows = dy[0], columns = dy[1], types = table[0];
  const std::int64_t sequence = request.params<DataParams>().sequence;
  DeviceScratch scratch(request);
  std::vector<ColumnSums> sums;
  for (std::int64_t type = 0; type < types; ++type) {
    // The rows of a sequence with row * types / sequence == type.
    const auto first = [&](std::int64_t of) { return (of * sequence + types - 1) / types; };
    SummedRows of_type;
    of_type.begin = first(type);
    of_type.run = std::max<std::int64_t>(first(type + 1) - first(type), 1);
    of_type.stride = sequence;
    of_type.count = rows / sequence * (first(type + 1) - first(type));
    DeviceScratch own = scratch;  // they run one after the other
    sums.emplace_back(request.device, of_type, columns, request.input(0).dtype,
                      request.output(0).dtype, own);
  }
  const std::int64_t row_bytes = columns * bytes_of(request.output(0).dtype).count();
  return make_cuda_kernel([sums, row_bytes](DeviceAddresses in, DeviceAddresses out) {
    for (std::size_t type = 0; type < sums.size(); ++type)
      sums[type].run(in[0], out[0] + std::int64_t(type) * row_bytes);
  });
}

}  // namespace plimsoll
