// Sums and maxima over a warp and over a block are taken in a fixed order, so equal runs give equal
// bits.
#pragma once

#include <cuda_runtime.h>

#include <limits>

namespace plimsoll {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
inline constexpr unsigned kFullWarp = 0xffffffffu;

template <class T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_xor_sync(kFullWarp, value, distance);
  return value;
}

/// Returns the larger value, and NaN where either value is NaN.
__device__ __forceinline__ float larger(float a, float b) { return a >= b || a != a ? a : b; }

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value = larger(value, __shfl_xor_sync(kFullWarp, value, distance));
  return value;
}

/// Reduces over a block of whole warps, at most 1024 threads. All threads call it, and every thread
/// gets the result.
template <class T>
__device__ __forceinline__ T block_sum(T value) {
  __shared__ T of_warps[32];
  value = warp_sum(value);
  if (blockDim.x == 32) return value;
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  __syncthreads();  // the last sum has been read
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  return warp_sum(lane < blockDim.x / 32 ? of_warps[lane] : T(0));
}

__device__ __forceinline__ float block_max(float value) {
  __shared__ float of_warps[32];
  value = warp_max(value);
  if (blockDim.x == 32) return value;
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  __syncthreads();
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  return warp_max(of_warps[lane < blockDim.x / 32 ? lane : 0]);
}

}  // namespace plimsoll
