// An Allocator describes how a framework takes device memory from the driver and gives it to
// tensors.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace plimsoll {

enum class AllocatorKind : std::uint8_t {
  arena,        ///< one block, laid out before the first step (passes/layout/plan_memory.h)
  caching,      ///< PyTorch's c10/cuda/CUDACachingAllocator.cpp
  auto_growth,  ///< Paddle's memory/allocation/auto_growth_best_fit_allocator.cc
};

/// The kinds other than `arena` keep freed blocks and use them again by best fit. Best fit takes
/// the smallest free block that is large enough, and of equals the one at the lowest address. It
/// splits a block where much is left, and merges a freed block with free neighbours. The memory
/// that they hold of the driver only grows, until the driver has no more.
struct Allocator {
  AllocatorKind kind = AllocatorKind::arena;
  Bytes rounding{512};  ///< requests are rounded up to this

  // caching: segments depend on the size of the request. One pool serves small requests and one all
  // others, and each stream has its own pools.
  Bytes small_request{std::int64_t{1} << 20};     ///< requests up to this come from the small pool,
  Bytes small_segment{std::int64_t{2} << 20};     ///< whose segments have this size
  Bytes medium_request{std::int64_t{10} << 20};   ///< requests below this
  Bytes medium_segment{std::int64_t{20} << 20};   ///< take a segment of this size,
  Bytes segment_rounding{std::int64_t{2} << 20};  ///< other requests are rounded up to this
  /// A rest of up to this many bytes in a block of the other pool is not split off.
  Bytes unsplit_rest{std::int64_t{1} << 20};
  /// Whether each pool and stream has one growing segment, whose pages are as large as the segments
  /// above (expandable_segments:True, from PyTorch 2.1 on).
  bool expandable_segments = false;

  // auto_growth: a chunk is taken for each request that no free block can hold.
  Bytes chunk_header{256};                      ///< bytes asked of the driver beside the request
  Bytes chunk_rounding{std::int64_t{2} << 20};  ///< the driver rounds chunks up to this
  bool operator==(const Allocator&) const = default;
};

/// Returns the constants of PyTorch from 1.3 to 2.9: kMinBlockSize, kSmallSize, kSmallBuffer,
/// kMinLargeAlloc, kLargeBuffer, kRoundLarge, and should_split().
inline Allocator pytorch_allocator() { return {.kind = AllocatorKind::caching}; }
/// Returns the constants of Paddle 2.0 to 2.6 with FLAGS_allocator_strategy=auto_growth, the
/// default. GpuMinChunkSize() is 256, and AlignedAllocator asks for as much more. The driver gives
/// whole 2 MiB, as the table of Paddle PR 34230 shows (16 MiB take 18).
inline Allocator paddle_allocator() {
  return {.kind = AllocatorKind::auto_growth, .rounding = Bytes(256)};
}

}  // namespace plimsoll
