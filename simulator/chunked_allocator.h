// An allocator that grows by chunks and gives nothing back: what it has reserved is what a device
// shows as used. Best fit with splitting and merging inside a chunk, as Paddle's
// AutoGrowthBestFitAllocator (paddle/fluid/memory/allocation/auto_growth_best_fit_allocator.cc).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/units.h"

namespace plimsoll {

struct ChunkRule {
  Bytes header{256};                     ///< added to every request
  Bytes alignment{256};                  ///< of requests with their header
  Bytes quantum{std::int64_t{2} << 20};  ///< of chunks: what cudaMalloc rounds up to
  bool operator==(const ChunkRule&) const = default;
};

/// What a request takes inside a chunk.
Bytes block_bytes(Bytes request, const ChunkRule& rule = {});
/// The chunk that is reserved for a request which no free block can hold. With the defaults 16 MiB
/// become 18, 256 MiB 258 and 786 MiB 788.
Bytes chunk_bytes(Bytes request, const ChunkRule& rule = {});
/// Growth of what is reserved when `count` tensors of `small` bytes are never freed, where all that
/// is free to carve them from is one chunk of a `large` request at a time, which then is missing
/// for its own purpose: one more such chunk whenever they have filled one. This is the law that the
/// published memory of Paddle PR 34230 follows (gpt2-medium, 8 stages).
Bytes carved_growth(Bytes small, Bytes large, std::int64_t count, const ChunkRule& rule = {});

class ChunkedAllocator {
 public:
  using Block = std::uint64_t;

  explicit ChunkedAllocator(const ChunkRule& rule = {}) : rule_(rule) {}
  Block take(Bytes request);
  void give(Block block);
  Bytes reserved() const { return reserved_; }  ///< all chunks

 private:
  /// Addresses are unique over chunks; chunks never touch.
  struct Range {
    Bytes size;
    bool free = false;
  };
  void set_free(std::int64_t address, bool free);

  ChunkRule rule_;
  std::map<std::int64_t, Range> ranges_;           // by address
  std::set<std::pair<Bytes, std::int64_t>> free_;  // size, address
  std::set<std::int64_t> chunk_begins_;
  std::int64_t next_address_ = 0;
  Bytes reserved_;
};

}  // namespace plimsoll
