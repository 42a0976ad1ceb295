// Products of each expert's rows and weight. Expert i has rows [ends[i-1], ends[i]), which only the
// device knows. So each block of the grid finds its expert and its rows by the ends. Values of 16
// bits in whole chunks go through tensor cores, others through plain loops over tiles.
#include <type_traits>

#include "graph/op_table.h"
#include "runtime/cuda/attention_tiles.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

constexpr int kTile = 64;   ///< rows and columns of a block's result
constexpr int kSmall = 16;  ///< the same of plain loops

/// Weights are [e,h,f].
struct ExpertShape {
  std::int64_t experts, rows, height, width;
};

/// The rows of a block: so many of one expert, from `begin` on. Tiles of rows are numbered through
/// over the experts. No rows: there are fewer tiles.
struct RowTile {
  std::int64_t expert = 0, begin = 0, end = 0;
};
__device__ RowTile row_tile(const ExpertShape& shape, const std::int32_t* ends, std::int64_t tile,
                            std::int64_t size) {
  std::int64_t first = 0;
  for (std::int64_t e = 0; e < shape.experts; ++e) {
    const std::int64_t end = ends[e], tiles = (end - first + size - 1) / size;
    if (tile < tiles) {
      const std::int64_t begin = first + tile * size;
      return {e, begin, begin + size < end ? begin + size : end};
    }
    tile -= tiles;
    first = end;
  }
  return {};
}

/// The most tiles that rows of experts can make.
unsigned most_tiles(const ExpertShape& shape, std::int64_t size) {
  return unsigned(shape.rows / size + shape.experts);
}

// ---- plain loops ----

/// y [rows,n] = x [rows,k] w, or x w^T if `transposed`. A thread computes one element.
template <class T>
__global__ void rows_plain(ExpertShape shape, bool transposed, const T* x, const T* weights,
                           const std::int32_t* ends, T* y) {
  __shared__ float a[kSmall][kSmall + 1], b[kSmall][kSmall + 1];
  const RowTile tile = row_tile(shape, ends, blockIdx.y, kSmall);
  if (tile.begin == tile.end) return;
  const std::int64_t k = transposed ? shape.width : shape.height,
                     n = transposed ? shape.height : shape.width;
  const T* w = weights + tile.expert * shape.height * shape.width;
  const std::int64_t row = tile.begin + threadIdx.y,
                     column = std::int64_t(blockIdx.x) * kSmall + threadIdx.x;
  float sum = 0;
  for (std::int64_t from = 0; from < k; from += kSmall) {
    const std::int64_t i = from + threadIdx.x, j = from + threadIdx.y;
    a[threadIdx.y][threadIdx.x] = row < tile.end && i < k ? to_float(x[row * k + i]) : 0;
    const bool valid = column < n && j < k;
    b[threadIdx.y][threadIdx.x] =
        valid ? to_float(transposed ? w[column * k + j] : w[j * n + column]) : 0;
    __syncthreads();
    for (int l = 0; l < kSmall; ++l) sum += a[threadIdx.y][l] * b[l][threadIdx.x];
    __syncthreads();
  }
  if (row < tile.end && column < n) y[row * n + column] = from_float<T>(sum);
}

/// dw [h,f] += x^T dy of expert blockIdx.z.
template <class T, class Sum>
__global__ void gradient_plain(ExpertShape shape, const T* x, const T* dy, const std::int32_t* ends,
                               Sum* gradients) {
  __shared__ float a[kSmall][kSmall + 1], b[kSmall][kSmall + 1];
  const std::int64_t expert = blockIdx.z;
  const std::int64_t begin = expert > 0 ? ends[expert - 1] : 0, end = ends[expert];
  const std::int64_t i = std::int64_t(blockIdx.y) * kSmall + threadIdx.y,
                     j = std::int64_t(blockIdx.x) * kSmall + threadIdx.x;
  const std::int64_t column = std::int64_t(blockIdx.y) * kSmall + threadIdx.x;
  float sum = 0;
  for (std::int64_t from = begin; from < end; from += kSmall) {
    const std::int64_t row = from + threadIdx.y;
    const bool valid = row < end;
    a[threadIdx.y][threadIdx.x] =
        valid && column < shape.height ? to_float(x[row * shape.height + column]) : 0;
    b[threadIdx.y][threadIdx.x] =
        valid && j < shape.width ? to_float(dy[row * shape.width + j]) : 0;
    __syncthreads();
    for (int l = 0; l < kSmall; ++l) sum += a[l][threadIdx.y] * b[l][threadIdx.x];
    __syncthreads();
  }
  if (i >= shape.height || j >= shape.width) return;
  Sum& to = gradients[(expert * shape.height + i) * shape.width + j];
  to = from_float<Sum>(to_float(to) + sum);
}

// ---- tensor cores ----

template <class T>
using SquareTile = Tile<T, kTile, kTile>;

/// Starts to copy rows that are `stride` elements apart.
template <class T>
__device__ void start_rows(T* tile, const T* from, std::int64_t stride, int rows, int depth) {
  SquareTile<T>::start(tile, from, rows, depth, [=](int row) { return row * stride; });
}

/// Loads the transposed rows [step * 16, + 16) and columns [row, row + 16) as a left matrix.
template <class T>
__device__ void left_transposed(std::uint32_t (&a)[4], T* tile, int row, int step) {
  const int lane = int(threadIdx.x) % 32;
  load_matrices_transposed(
      a, SquareTile<T>::chunk(tile, step * 16 + lane / 16 * 8 + lane % 8, row / 8 + lane / 8 % 2));
}

/// A warp's part of a tile's result: 16 rows of 8 columns each.
struct Sums {
  float parts[kTile / 8][4] = {};
};

/// Calls visit(row, column, value) for each element that this thread has.
template <class Visit>
__device__ void each_sum(const Sums& sums, Visit visit) {
  const int lane = int(threadIdx.x) % 32, row = int(threadIdx.x) / 32 * 16 + lane / 4;
#pragma unroll
  for (int part = 0; part < kTile / 8; ++part) {
    const int column = part * 8 + lane % 4 * 2;
    visit(row, column, sums.parts[part][0]);
    visit(row, column + 1, sums.parts[part][1]);
    visit(row + 8, column, sums.parts[part][2]);
    visit(row + 8, column + 1, sums.parts[part][3]);
  }
}

/// Adds the product of two tiles in shared memory. `a_rows`: the left matrix lies by rows, else by
/// columns; `b_rows` likewise of the right one.
template <class T, bool kARows, bool kBRows>
__device__ void multiply_tiles(Sums& sums, T* a_tile, T* b_tile) {
  const int row = int(threadIdx.x) / 32 * 16;
#pragma unroll
  for (int step = 0; step < kTile / 16; ++step) {
    std::uint32_t a[4];
    if constexpr (kARows) {
      SquareTile<T>::left(a, a_tile, row, step);
    } else {
      left_transposed(a, a_tile, row, step);
    }
#pragma unroll
    for (int pair = 0; pair < kTile / 16; ++pair) {
      std::uint32_t b[4];
      if constexpr (kBRows) {
        SquareTile<T>::right(b, b_tile, step * 16, pair);
      } else {
        SquareTile<T>::right_transposed(b, b_tile, pair * 16, step);
      }
      multiply_add<T>(sums.parts[2 * pair], a, b[0], b[1]);
      multiply_add<T>(sums.parts[2 * pair + 1], a, b[2], b[3]);
    }
  }
}

__device__ int part_of(std::int64_t whole, std::int64_t from) {
  return int(whole - from < kTile ? whole - from : kTile);
}

template <class T, bool kTransposed>
__global__ void rows_by_tiles(ExpertShape shape, const T* x, const T* weights,
                              const std::int32_t* ends, T* y) {
  T* a = dynamic_shared<T>();
  T* b = a + SquareTile<T>::kElements;
  const RowTile tile = row_tile(shape, ends, blockIdx.y, kTile);
  if (tile.begin == tile.end) return;
  const std::int64_t k = kTransposed ? shape.width : shape.height,
                     n = kTransposed ? shape.height : shape.width;
  const T* w = weights + tile.expert * shape.height * shape.width;
  const std::int64_t column = std::int64_t(blockIdx.x) * kTile;
  const int rows = int(tile.end - tile.begin);
  Sums sums;
  for (std::int64_t from = 0; from < k; from += kTile) {
    const int inner = part_of(k, from);
    start_rows(a, x + tile.begin * k + from, k, rows, inner);
    if constexpr (kTransposed) {
      start_rows(b, w + column * k + from, k, part_of(n, column), inner);
    } else {
      start_rows(b, w + from * n + column, n, inner, part_of(n, column));
    }
    commit_copies();
    wait_for_copies();
    __syncthreads();
    multiply_tiles<T, true, !kTransposed>(sums, a, b);
    __syncthreads();
  }
  each_sum(sums, [&](int r, int c, float value) {
    if (r < rows && column + c < n) y[(tile.begin + r) * n + column + c] = from_float<T>(value);
  });
}

template <class T, class Sum>
__global__ void gradient_by_tiles(ExpertShape shape, const T* x, const T* dy,
                                  const std::int32_t* ends, Sum* gradients) {
  T* a = dynamic_shared<T>();
  T* b = a + SquareTile<T>::kElements;
  const std::int64_t expert = blockIdx.z;
  const std::int64_t begin = expert > 0 ? ends[expert - 1] : 0, end = ends[expert];
  const std::int64_t row = std::int64_t(blockIdx.y) * kTile,
                     column = std::int64_t(blockIdx.x) * kTile;
  Sums sums;
  for (std::int64_t from = begin; from < end; from += kTile) {
    const int inner = part_of(end, from);
    start_rows(a, x + from * shape.height + row, shape.height, inner, part_of(shape.height, row));
    start_rows(b, dy + from * shape.width + column, shape.width, inner,
               part_of(shape.width, column));
    commit_copies();
    wait_for_copies();
    __syncthreads();
    multiply_tiles<T, false, true>(sums, a, b);
    __syncthreads();
  }
  each_sum(sums, [&](int r, int c, float value) {
    if (row + r >= shape.height || column + c >= shape.width) return;
    Sum& to = gradients[(expert * shape.height + row + r) * shape.width + column + c];
    to = from_float<Sum>(to_float(to) + value);
  });
}

unsigned tiles_of(std::int64_t length, int size) { return unsigned((length + size - 1) / size); }

/// y = x w, or dx = dy w^T.
CudaKernelPointer prepare_rows(const CudaRequest& request, bool transposed) {
  const CudaDevice& device = request.device;
  const Shape& weight = request.input(1).shape;
  const ExpertShape shape{weight[0], request.input(0).shape[0], weight[1],
                          elements(weight) / (weight[0] * weight[1])};
  const std::int64_t n = transposed ? shape.height : shape.width;
  const DType type = request.output(0).dtype;
  const auto bytes = std::size_t(bytes_of(request.output(0)).count());
  return make_cuda_kernel(
      [=, &device](DeviceAddresses in, DeviceAddresses out) {
        check(cudaMemsetAsync(out[0], 0, bytes, device.stream), "rows of no expert");
        with_type(type, [&](auto zero) {
          using T = decltype(zero);
          const T *x = input_at<T>(in, 0), *w = input_at<T>(in, 1);
          T* y = output_at<T>(out, 0);
          const auto* ends = input_at<std::int32_t>(in, 2);
          if constexpr (!std::is_same_v<T, float>) {
            if (aligned({x, w, y}) && shape.height % 8 == 0 && shape.width % 8 == 0) {
              const std::size_t shared = 2 * SquareTile<T>::kElements * sizeof(T);
              return launch(device.stream, dim3(tiles_of(n, kTile), most_tiles(shape, kTile)),
                            kAttentionThreads, shared,
                            transposed ? rows_by_tiles<T, true> : rows_by_tiles<T, false>, shape, x,
                            w, ends, y);
            }
          }
          launch(device.stream, dim3(tiles_of(n, kSmall), most_tiles(shape, kSmall)),
                 dim3(kSmall, kSmall), 0, rows_plain<T>, shape, transposed, x, w, ends, y);
        });
      },
      flops(request.op, request.tensors));
}

}  // namespace

CudaKernelPointer prepare_grouped_matmul(const CudaRequest& request) {
  return prepare_rows(request, false);
}

CudaKernelPointer prepare_grouped_matmul_backward(const CudaRequest& request) {
  return prepare_rows(request, true);
}

CudaKernelPointer prepare_grouped_weight_gradient(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const Shape& weight = request.output(0).shape;
  const ExpertShape shape{weight[0], request.input(0).shape[0], weight[1],
                          elements(weight) / (weight[0] * weight[1])};
  const DType type = request.input(0).dtype, sum_type = request.output(0).dtype;
  return make_cuda_kernel(
      [=, &device](DeviceAddresses in, DeviceAddresses out) {
        with_type(type, [&](auto zero) {
          with_type(sum_type, [&](auto sum) {
            using T = decltype(zero);
            using Sum = decltype(sum);
            const T *x = input_at<T>(in, 0), *dy = input_at<T>(in, 1);
            Sum* gradients = output_at<Sum>(out, 0);
            const auto* ends = input_at<std::int32_t>(in, 2);
            const auto grid = [&](int size) {
              return dim3(tiles_of(shape.width, size), tiles_of(shape.height, size),
                          unsigned(shape.experts));
            };
            if constexpr (!std::is_same_v<T, float>) {
              if (aligned({x, dy}) && shape.height % 8 == 0 && shape.width % 8 == 0) {
                const std::size_t shared = 2 * SquareTile<T>::kElements * sizeof(T);
                return launch(device.stream, grid(kTile), kAttentionThreads, shared,
                              gradient_by_tiles<T, Sum>, shape, x, dy, ends, gradients);
              }
            }
            launch(device.stream, grid(kSmall), dim3(kSmall, kSmall), 0, gradient_plain<T, Sum>,
                   shape, x, dy, ends, gradients);
          });
        });
      },
      flops(request.op, request.tensors));
}

}  // namespace plimsoll
