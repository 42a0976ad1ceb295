// Values in device memory are converted to f32 when loaded and rounded when stored, in packs of 16
// bytes. This header also chooses the number of blocks of a kernel.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "base/error.h"
#include "graph/tensor.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/kernels.h"

namespace plimsoll {

using bf16 = __nv_bfloat16;
using f16 = __half;

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(bf16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float to_float(f16 value) { return __half2float(value); }

/// Rounds to nearest, ties to even.
template <class T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ __forceinline__ f16 from_float<f16>(float value) {
  return __float2half_rn(value);
}

/// The number of elements of one 16-byte access.
template <class T>
inline constexpr int kPack = int(16 / sizeof(T));

template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Pack {
  T values[kCount];
};

/// `from` is aligned to the pack, or to 16 bytes where the pack is larger.
template <class T, int kCount>
__device__ __forceinline__ void load(const T* from, float (&values)[kCount]) {
  const Pack<T, kCount> pack = *reinterpret_cast<const Pack<T, kCount>*>(from);
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = to_float(pack.values[i]);
}
template <class T, int kCount>
__device__ __forceinline__ void store(T* to, const float (&values)[kCount]) {
  Pack<T, kCount> pack;
#pragma unroll
  for (int i = 0; i < kCount; ++i) pack.values[i] = from_float<T>(values[i]);
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

/// Loads one element of a type that is known only when the kernel runs. It is slow and for rare
/// use.
__device__ __forceinline__ float load_any(DType type, const void* from, std::int64_t i) {
  if (type == DType::bf16) return to_float(static_cast<const bf16*>(from)[i]);
  if (type == DType::f16) return to_float(static_cast<const f16*>(from)[i]);
  return static_cast<const float*>(from)[i];
}
__device__ __forceinline__ void store_any(DType type, void* to, std::int64_t i, float value) {
  if (type == DType::bf16) {
    static_cast<bf16*>(to)[i] = from_float<bf16>(value);
  } else if (type == DType::f16) {
    static_cast<f16*>(to)[i] = from_float<f16>(value);
  } else {
    static_cast<float*>(to)[i] = value;
  }
}

/// Calls f with a value of the C++ type that stores `type`.
template <class Function>
void with_type(DType type, Function f) {
  switch (type) {
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(bf16{});
    case DType::f16:
      return f(f16{});
    case DType::i32:
    case DType::u8:
    case DType::e4m3:
    case DType::e5m2:
      break;
  }
  INVARIANT(false, "a kernel of floating values was asked for another type");
}

/// Returns a kernel whose run is `function(T{}, inputs, outputs)`, with the C++ type T that stores
/// `type`.
template <class Function>
CudaKernelPointer make_typed_kernel(DType type, Function function) {
  return make_cuda_kernel([type, function](DeviceAddresses in, DeviceAddresses out) {
    with_type(type, [&](auto zero) { function(zero, in, out); });
  });
}

/// Returns whether all addresses, and rows of `row_bytes` that start there, allow 16-byte accesses.
inline bool aligned(std::initializer_list<const void*> addresses, std::int64_t row_bytes = 16) {
  return row_bytes % 16 == 0 && std::all_of(addresses.begin(), addresses.end(), [](const void* at) {
           return reinterpret_cast<std::uintptr_t>(at) % 16 == 0;
         });
}

struct alignas(16) Word16 {
  std::uint32_t words[4];
};
/// Calls start(Word{}) with the widest word for copies of aligned values, or of any floating ones.
template <class Start>
void with_word(bool wide, Start start) {
  if (wide) {
    start(Word16{});
  } else {
    start(std::uint16_t{});  // no floating type is smaller
  }
}

/// The threads of a block in kernels whose threads do not cooperate.
inline constexpr int kThreads = 256;

/// Returns the blocks of a loop over `items` in steps of the whole grid: enough to fill the GPU
/// twice over, but no more than there are items for.
inline unsigned blocks_for(const CudaDevice& device, std::int64_t items, int threads = kThreads) {
  const std::int64_t needed = (items + threads - 1) / threads;
  const std::int64_t most = std::int64_t(device.multiprocessors) * (2 * 2048 / threads);
  return unsigned(std::clamp<std::int64_t>(needed, 1, std::max<std::int64_t>(most, 1)));
}

/// Returns the index of this thread in a one-dimensional launch.
__device__ __forceinline__ std::int64_t global_thread() {
  return std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::int64_t global_threads() {
  return std::int64_t(gridDim.x) * blockDim.x;
}

}  // namespace plimsoll
