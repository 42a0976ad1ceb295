// A tile holds rows in shared memory for products of a warp. Rows are copied from global memory in
// 16-byte chunks, which are permuted within a row so that eight rows of a matrix lie in different
// banks.
#pragma once

#include <cstdint>

#include "runtime/cuda/tensor_core.h"

namespace plimsoll {

inline constexpr int kAttentionThreads = 128, kAttentionWarps = 4;
inline constexpr float kLog2E = 1.44269504f;

/// A Tile has kRows rows of kDepth elements of 2 bytes.
template <class T, int kRows, int kDepth>
struct Tile {
  static constexpr int kChunks = kDepth / 8, kElements = kRows * kDepth;

  /// Returns the address of a chunk of 8 elements.
  __device__ static T* chunk(T* tile, int row, int chunk) {
    return tile + row * kDepth + (chunk ^ (row & 7)) * 8;
  }

  /// Starts to copy rows, the i-th from element offset(i) of `from`. It writes zeros from row
  /// `rows` and from column `depth` on. The whole block calls it.
  template <class Offset>
  __device__ static void start(T* tile, const T* from, int rows, int depth, Offset offset) {
    for (int i = int(threadIdx.x); i < kRows * kChunks; i += kAttentionThreads) {
      const int row = i / kChunks, column = i % kChunks;
      const bool valid = row < rows && column * 8 < depth;
      start_copy(chunk(tile, row, column), valid ? from + offset(row) + column * 8 : from, valid);
    }
  }

  /// Loads rows [row, row + 16), columns [16 step, 16 step + 16) as the left matrix of a product.
  __device__ static void left(std::uint32_t (&a)[4], T* tile, int row, int step) {
    const int lane = int(threadIdx.x) % 32;
    load_matrices(a, chunk(tile, row + lane % 16, 2 * step + lane / 16));
  }
  /// Loads the rows and columns transposed, as two right matrices [16,8]: columns of the product
  /// are rows here. b[0] and b[1] are for rows [row, row + 8), b[2] and b[3] for the next 8.
  __device__ static void right_transposed(std::uint32_t (&b)[4], T* tile, int row, int step) {
    const int lane = int(threadIdx.x) % 32;
    load_matrices(b, chunk(tile, row + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
  }
  /// Loads rows [row, row + 16), columns [16 pair, 16 pair + 16) as two right matrices [16,8].
  __device__ static void right(std::uint32_t (&b)[4], T* tile, int row, int pair) {
    const int lane = int(threadIdx.x) % 32;
    load_matrices_transposed(b, chunk(tile, row + lane % 16, 2 * pair + lane / 16));
  }
};

/// Rounds two results [16,8], which lie side by side, to the left matrix [16,16] of the next
/// product.
template <class T>
__device__ __forceinline__ void as_left(std::uint32_t (&a)[4], const float (&first)[4],
                                        const float (&second)[4]) {
  a[0] = pack_two<T>(first[0], first[1]);
  a[1] = pack_two<T>(first[2], first[3]);
  a[2] = pack_two<T>(second[0], second[1]);
  a[3] = pack_two<T>(second[2], second[3]);
}

/// Reduce over the four lanes that share rows of a result.
__device__ __forceinline__ float quad_sum(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}
__device__ __forceinline__ float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

/// Writes a result [16,8] at `row`, `column` of rows, of which the i-th is at element offset(i) of
/// `to`, as far as it lies within them.
template <class T, class Offset>
__device__ __forceinline__ void store_result(T* to, Offset offset, int rows, int depth, int row,
                                             int column, const float (&result)[4], float factor_low,
                                             float factor_high) {
  const int lane = int(threadIdx.x) % 32;
  const int r = row + lane / 4, c = column + lane % 4 * 2;
  if (c >= depth) return;
  if (r < rows) {
    *reinterpret_cast<std::uint32_t*>(to + offset(r) + c) =
        pack_two<T>(result[0] * factor_low, result[1] * factor_low);
  }
  if (r + 8 < rows) {
    *reinterpret_cast<std::uint32_t*>(to + offset(r + 8) + c) =
        pack_two<T>(result[2] * factor_high, result[3] * factor_high);
  }
}

}  // namespace plimsoll
