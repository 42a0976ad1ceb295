// Allocator: how a framework takes device memory from the driver and hands it out to tensors.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace plimsoll {

enum class AllocatorKind : std::uint8_t {
  arena,        ///< one block, laid out before the first step (passes/layout/plan_memory.h)
  caching,      ///< PyTorch's c10/cuda/CUDACachingAllocator.cpp
  auto_growth,  ///< Paddle's memory/allocation/auto_growth_best_fit_allocator.cc
};

/// Both that are not an arena keep what is freed and hand it out again by best fit: the smallest
/// free block that is large enough, of equals the one at the lowest address, split where much is
/// left, merged with free neighbours when it comes back. What they hold of the driver only grows,
/// until that has no more.
struct Allocator {
  AllocatorKind kind = AllocatorKind::arena;
  Bytes rounding{512};  ///< of requests

  // caching: segments by size of the request, from one pool for small and one for other requests,
  // both separate for each stream.
  Bytes small_request{std::int64_t{1} << 20};     ///< up to this, from the small pool,
  Bytes small_segment{std::int64_t{2} << 20};     ///< whose segments have this size
  Bytes medium_request{std::int64_t{10} << 20};   ///< below this
  Bytes medium_segment{std::int64_t{20} << 20};   ///< a segment of this size,
  Bytes segment_rounding{std::int64_t{2} << 20};  ///< else the request, rounded up to this
  /// A rest of up to this many bytes in a block of the other pool is handed out, too.
  Bytes unsplit_rest{std::int64_t{1} << 20};
  /// One growing segment for each pool and stream, by pages as large as the segments above
  /// (expandable_segments:True, from PyTorch 2.1 on).
  bool expandable_segments = false;

  // auto_growth: a chunk for each request that nothing free can hold.
  Bytes chunk_header{256};                      ///< asked of the driver beside the request
  Bytes chunk_rounding{std::int64_t{2} << 20};  ///< what the driver rounds chunks up to
  bool operator==(const Allocator&) const = default;
};

/// Constants of PyTorch from 1.3 to 2.9: kMinBlockSize, kSmallSize, kSmallBuffer, kMinLargeAlloc,
/// kLargeBuffer, kRoundLarge, and should_split().
Allocator pytorch_allocator();
/// Paddle 2.0 to 2.6 with FLAGS_allocator_strategy=auto_growth, the default: GpuMinChunkSize() is
/// 256, and AlignedAllocator asks for as much more. The driver gives whole 2 MiB, as the table of
/// Paddle PR 34230 shows (16 MiB take 18).
Allocator paddle_allocator();

}  // namespace plimsoll
