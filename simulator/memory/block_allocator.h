// Block allocator: a framework's allocator, block by block, without any memory behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/units.h"
#include "models/framework/allocator.h"

namespace plimsoll {

/// AllocatorKind::caching follows c10/cuda/CUDACachingAllocator.cpp (PyTorch), and auto_growth
/// follows auto_growth_best_fit_allocator.cc (Paddle). The allocator's state depends only on the
/// sequence of requests. Lists of free blocks are flat, because such blocks are few.
class BlockAllocator {
 public:
  using Block = std::uint32_t;

  /// `limit` is the most that the driver gives.
  explicit BlockAllocator(const Allocator& rule, Bytes limit = Bytes(std::int64_t{1} << 60));

  /// Returns nothing where memory is short even after every free block was given back to the
  /// driver. Freed memory is handed out on the same stream only (caching).
  std::optional<Block> take(Bytes request, std::uint32_t stream = 0);
  void give(Block block);
  /// Gives free memory back to the driver, by whole segments (torch.cuda.empty_cache), or by pages
  /// of a segment that grows. Returns the number of whole segments.
  std::int64_t empty_cache();

  // The following functions serve to follow a recorded allocator, whose segments do not grow. The
  // driver chooses addresses. Of free blocks of one size, the one at the lowest address is taken.
  struct AddressRange {
    std::int64_t address = 0;
    Bytes bytes;
  };
  /// Adds a segment that exists already, in which the blocks `taken`, ascending by address, are
  /// handed out. Returns these blocks.
  std::vector<Block> adopt(AddressRange segment, std::span<const AddressRange> taken);
  /// Sets the address of the next segment; nothing: behind all others.
  void place_next_segment(std::optional<std::int64_t> address) { placed_ = address; }
  std::int64_t address(Block block) const { return blocks_[block].address; }

  Bytes bytes(Block block) const { return Bytes(blocks_[block].size); }  ///< its size
  Bytes allocated() const { return allocated_; }                         ///< in blocks handed out
  Bytes reserved() const { return reserved_; }                           ///< taken from the driver
  Bytes most_reserved() const { return most_reserved_; }
  std::int64_t retries() const { return retries_; }  ///< times that all caches were given back

 private:
  static constexpr Block kNone = ~Block{0};
  enum class Use : std::uint8_t { taken, free, unmapped };

  struct FreeBlock {
    std::int64_t size, address;
    Block block;
  };
  using FreeBlocks = std::vector<FreeBlock>;  ///< ascending

  /// A block. The blocks of a segment are a list in order of their addresses.
  struct Range {
    std::int64_t size = 0, address = 0;
    Block previous = kNone, next = kNone;
    std::uint32_t pool = 0;
    std::int64_t driver = 0;  ///< of a segment's first block: bytes taken from the driver
    Use use = Use::free;
  };
  /// The pool of requests of one stream and size class.
  struct Pool {
    bool small = false;
    FreeBlocks free;
    std::set<std::pair<std::int64_t, Block>> unmapped;  ///< by address
  };

  std::int64_t rounded(Bytes request) const;
  std::uint32_t pool_of(std::int64_t size, std::uint32_t stream);
  bool splits(std::int64_t rest, const Pool& pool) const;
  std::optional<std::ptrdiff_t> find_free(std::int64_t size, const Pool& pool) const;
  std::optional<Block> grow(std::int64_t size, std::uint32_t pool);
  std::optional<Block> add_segment(std::int64_t size, std::uint32_t pool);
  std::optional<Block> expand(std::int64_t size, std::uint32_t pool);
  Block begin_segment(Range range);
  bool map(Block block, std::int64_t bytes, Block& mapped);
  void unmap_pages(Block block);

  Block make(const Range& range);
  Block split_off(Block block, std::int64_t size);  ///< keeps `size` bytes, returns the rest
  Block merge(Block first, Block second);
  void enlist(Block block);
  void delist(Block block);
  void relist(FreeBlocks& free, std::ptrdiff_t place, Block block);
  std::ptrdiff_t place_of(Block block) const;  ///< of a free block, in its list
  std::int64_t page(const Pool& pool) const;
  bool driver_has(std::int64_t bytes) const { return reserved_.count() + bytes <= limit_.count(); }
  void reserve(std::int64_t bytes);

  Allocator rule_;
  Bytes limit_;
  std::vector<Range> blocks_;
  std::vector<Block> unused_;    ///< of blocks_
  std::vector<Block> segments_;  ///< the first block of each, in order of their addresses
  std::vector<Pool> pools_;
  std::vector<std::uint32_t> pool_index_;  ///< by 2 * stream, + 1 of small requests; kNone: no pool
  std::int64_t next_address_ = 0;
  std::optional<std::int64_t> placed_;  ///< of the next segment
  Bytes allocated_, reserved_, most_reserved_;
  std::int64_t retries_ = 0;
};

}  // namespace plimsoll
