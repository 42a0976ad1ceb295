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

/// Calls visit(first) for kAtOnce elements first, first + blockDim.x, ... of the block's chunk. The
/// last ones may lie behind its end.
template <class Visit>
__device__ __forceinline__ void for_each_batch(std::int32_t elements, Visit visit) {
  for (int first = int(threadIdx.x); first < elements; first += kAtOnce * int(blockDim.x))
    visit(first);
}

}  // namespace plimsoll
