// An owned part of an arena, or a tensor, is cut into chunks, and a block works on one chunk.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/arena.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

/// A FlatChunk is in device memory. Offsets are in elements.
struct FlatChunk {
  std::int64_t arena_at, state_at;
  std::int32_t elements;
  std::int32_t segment;  ///< index in the table of the chunk's kernel
  double norm_weight;
  float rate, decay;  ///< of the update: factor of the learning rate; weight decay
  bool clip;

  __device__ std::int64_t at(bool part) const { return part ? state_at : arena_at; }
};
inline constexpr std::int64_t kChunkElements = 16384;

/// FlatChunks are uploaded chunks of some ranges, in ascending order. No chunk crosses from one
/// range to the next.
struct FlatChunks {
  DeviceMemory memory;
  unsigned count = 0;
  const FlatChunk* data() const { return memory.as<const FlatChunk>(); }
};
FlatChunks upload_chunks(const std::vector<FlatChunk>& chunks);

/// `weight_decay` is the optimizer's. FlatChunk::segment is the range's segment.
std::vector<FlatChunk> chunks_of(const std::vector<OwnedRange>& ranges, double weight_decay = 0);

/// The number of elements, `blockDim.x` apart, that a thread loads before it stores any.
inline constexpr int kAtOnce = 4;

/// A Stored array has values of a floating type that is known only when the kernel runs.
struct Stored {
  void* at;
  DType type;
};

/// kAtOnce elements of a thread, `blockDim.x` apart.
struct Batch {
  float values[kAtOnce];
  __device__ __forceinline__ Batch(const float* from, int first, int elements) {
    load(from, first, elements);
  }
  /// Elements of the array from `begin` on.
  __device__ __forceinline__ Batch(const Stored& from, std::int64_t begin, int first,
                                   int elements) {
    if (from.type == DType::f32) {
      load(static_cast<const float*>(from.at) + begin, first, elements);
    } else if (from.type == DType::bf16) {
      load(static_cast<const bf16*>(from.at) + begin, first, elements);
    } else {
      load(static_cast<const f16*>(from.at) + begin, first, elements);
    }
  }
  __device__ __forceinline__ void store(const Stored& to, std::int64_t begin, int first,
                                        int elements) const {
    if (to.type == DType::f32) {
      put(static_cast<float*>(to.at) + begin, first, elements);
    } else if (to.type == DType::bf16) {
      put(static_cast<bf16*>(to.at) + begin, first, elements);
    } else {
      put(static_cast<f16*>(to.at) + begin, first, elements);
    }
  }
  __device__ __forceinline__ void store(float* to, int first, int elements) const {
    put(to, first, elements);
  }
  __device__ __forceinline__ float& operator[](int k) { return values[k]; }
  __device__ __forceinline__ float operator[](int k) const { return values[k]; }

 private:
  template <class T>
  __device__ __forceinline__ void load(const T* from, int first, int elements) {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = first + k * int(blockDim.x);
      values[k] = i < elements ? to_float(from[i]) : 0;
    }
  }
  template <class T>
  __device__ __forceinline__ void put(T* to, int first, int elements) const {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = first + k * int(blockDim.x);
      if (i < elements) to[i] = from_float<T>(values[k]);
    }
  }
};

/// Calls visit(first) for kAtOnce elements first, first + blockDim.x, ... of the block's chunk. The
/// last ones may lie behind its end.
template <class Visit>
__device__ __forceinline__ void for_each_batch(std::int32_t elements, Visit visit) {
  for (int first = int(threadIdx.x); first < elements; first += kAtOnce * int(blockDim.x))
    visit(first);
}

}  // namespace plimsoll
