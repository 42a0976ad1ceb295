// Splits, merges and lists blocks as the frameworks' allocators do.
#include "simulator/memory/block_allocator.h"

#include <algorithm>

#include "base/error.h"

namespace plimsoll {
namespace {

/// Address space of a segment that grows. No device has as much memory.
constexpr std::int64_t kAddressSpace = std::int64_t{1} << 44;

std::int64_t up(std::int64_t size, Bytes to) { return round_up(Bytes(size), to).count(); }

/// Returns the place, between `first` and `last`, of a free block of this size at this address, or
/// the place where it belongs. No branch depends on a comparison: half of these branches would be
/// mispredicted.
template <class FreeBlock>
std::ptrdiff_t place_between(const FreeBlock* free, std::ptrdiff_t first, std::ptrdiff_t last,
                             std::int64_t size, std::int64_t address) {
  __extension__ using Key = __int128;
  const auto key = [](std::int64_t high, std::int64_t low) { return Key(high) << 64 | Key(low); };
  const Key wanted = key(size, address);
  for (std::ptrdiff_t left = last - first; left > 0;) {
    const std::ptrdiff_t half = (left + 1) / 2;
    const FreeBlock& other = free[first + half - 1];
    first += key(other.size, other.address) < wanted ? half : 0;
    left -= half;
  }
  return first;
}

template <class FreeBlocks>
std::ptrdiff_t place_of(const FreeBlocks& free, std::int64_t size, std::int64_t address) {
  return place_between(free.data(), 0, std::ptrdiff_t(free.size()), size, address);
}

}  // namespace

BlockAllocator::BlockAllocator(const Allocator& rule, Bytes limit) : rule_(rule), limit_(limit) {
  INVARIANT(rule.kind != AllocatorKind::arena, "an arena is laid out, not grown");
}

std::int64_t BlockAllocator::rounded(Bytes request) const {
  return std::max(round_up(request, rule_.rounding), rule_.rounding).count();
}

std::uint32_t BlockAllocator::pool_of(std::int64_t size, std::uint32_t stream) {
  const bool caching = rule_.kind == AllocatorKind::caching;
  const bool small = caching && size <= rule_.small_request.count();
  const std::size_t index = 2 * std::size_t(caching ? stream : 0) + (small ? 1 : 0);
  if (index >= pool_index_.size()) pool_index_.resize(index + 1, kNone);
  if (pool_index_[index] == kNone) {
    pool_index_[index] = std::uint32_t(pools_.size());
    pools_.emplace_back().small = small;
  }
  return pool_index_[index];
}

std::int64_t BlockAllocator::page(const Pool& pool) const {
  return (pool.small ? rule_.small_segment : rule_.medium_segment).count();
}

bool BlockAllocator::splits(std::int64_t rest, const Pool& pool) const {
  if (rule_.kind == AllocatorKind::auto_growth) return rest > 0;
  if (pool.small || rule_.expandable_segments) return rest >= rule_.rounding.count();
  return rest > rule_.unsplit_rest.count();
}

std::optional<BlockAllocator::Block> BlockAllocator::take(Bytes request, std::uint32_t stream) {
  const std::int64_t size = rounded(request);
  const std::uint32_t pool = pool_of(size, stream);
  std::optional<std::ptrdiff_t> place = find_free(size, pools_[pool]);
  if (!place) {
    std::optional<Block> grown = grow(size, pool);
    if (!grown) {
      ++retries_;
      empty_cache();
      grown = grow(size, pool);
      if (!grown) return std::nullopt;
    }
    place = place_of(*grown);
  }
  FreeBlocks& free = pools_[pool].free;
  Block block = free[std::size_t(*place)].block;
  const std::int64_t rest = blocks_[block].size - size;
  if (splits(rest, pools_[pool])) {
    // Paddle hands out the end of a free block, PyTorch its beginning.
    const bool at_end = rule_.kind == AllocatorKind::auto_growth;
    const Block second = split_off(block, at_end ? rest : size);
    relist(free, *place, at_end ? block : second);
    if (at_end) block = second;
  } else {
    free.erase(free.begin() + *place);
  }
  blocks_[block].use = Use::taken;
  allocated_ += Bytes(blocks_[block].size);
  return block;
}

void BlockAllocator::give(Block block) {
  INVARIANT(blocks_[block].use == Use::taken, "a block is given back once");
  allocated_ -= Bytes(blocks_[block].size);
  blocks_[block].use = Use::free;
  FreeBlocks& free = pools_[blocks_[block].pool].free;
  std::optional<std::ptrdiff_t> place;  // of a free block that becomes part of this one
  const Block after = blocks_[block].next;
  if (after != kNone && blocks_[after].use == Use::free) {
    place = place_of(after);
    block = merge(block, after);
  }
  const Block before = blocks_[block].previous;
  if (before != kNone && blocks_[before].use == Use::free) {
    if (place) free.erase(free.begin() + *place);
    place = place_of(before);
    block = merge(before, block);
  }
  place ? relist(free, *place, block) : enlist(block);
}

/// Finds the free block to use. A block before the growing end of a segment counts with the size to
/// which it can grow.
std::optional<std::ptrdiff_t> BlockAllocator::find_free(std::int64_t size, const Pool& pool) const {
  auto found = pool.free.begin() + plimsoll::place_of(pool.free, size, 0);
  if (found == pool.free.end()) return std::nullopt;
  if (rule_.expandable_segments) {
    const auto can_be = [&](Block block) {
      const Block next = blocks_[block].next;
      const bool grows = next != kNone && blocks_[next].use == Use::unmapped;
      return blocks_[block].size + (grows ? blocks_[next].size : 0);
    };
    for (auto next = std::next(found); next != pool.free.end(); found = next++) {
      if (can_be(next->block) >= can_be(found->block)) break;
    }
  }
  return found - pool.free.begin();
}

std::optional<BlockAllocator::Block> BlockAllocator::grow(std::int64_t size, std::uint32_t pool) {
  return rule_.expandable_segments ? expand(size, pool) : add_segment(size, pool);
}

void BlockAllocator::reserve(std::int64_t bytes) {
  reserved_ += Bytes(bytes);
  most_reserved_ = std::max(most_reserved_, reserved_);
}

std::optional<BlockAllocator::Block> BlockAllocator::add_segment(std::int64_t size,
                                                                 std::uint32_t pool) {
  std::int64_t usable = size, driver = 0;
  if (rule_.kind == AllocatorKind::auto_growth) {
    usable = size + rule_.chunk_header.count();
    driver = up(usable, rule_.chunk_rounding);
  } else {
    if (pools_[pool].small) {
      usable = rule_.small_segment.count();
    } else if (size < rule_.medium_request.count()) {
      usable = rule_.medium_segment.count();
    } else {
      usable = up(size, rule_.segment_rounding);
    }
    driver = usable;
  }
  if (!driver_has(driver)) return std::nullopt;
  reserve(driver);
  Range range;
  range.size = usable;
  range.address = placed_.value_or(next_address_);
  range.pool = pool;
  range.driver = driver;
  const Block block = begin_segment(range);
  enlist(block);
  return block;
}

/// Makes a new segment and returns it as one block.
BlockAllocator::Block BlockAllocator::begin_segment(Range range) {
  next_address_ = std::max(next_address_, range.address + range.driver);
  const Block block = make(range);
  const auto after = std::upper_bound(
      segments_.begin(), segments_.end(), range.address,
      [&](std::int64_t address, Block other) { return address < blocks_[other].address; });
  segments_.insert(after, block);
  return block;
}

std::vector<BlockAllocator::Block> BlockAllocator::adopt(AddressRange segment,
                                                         std::span<const AddressRange> taken) {
  INVARIANT(rule_.kind == AllocatorKind::caching && !rule_.expandable_segments,
            "segments that do not grow are adopted");
  Range range;
  range.size = range.driver = segment.bytes.count();
  range.address = segment.address;
  // A segment of at most small_segment bytes serves small requests.
  range.pool = pool_of(segment.bytes <= rule_.small_segment ? 1 : segment.bytes.count(), 0);
  reserve(range.driver);
  Block rest = begin_segment(range);
  std::vector<Block> blocks;
  for (const AddressRange& place : taken) {
    const std::int64_t size = round_up(place.bytes, rule_.rounding).count();
    if (place.address > blocks_[rest].address) {
      const Block free = rest;
      rest = split_off(free, place.address - blocks_[free].address);
      enlist(free);
    }
    const bool more = size < blocks_[rest].size;
    const Block block = rest;
    if (more) rest = split_off(block, size);
    blocks_[block].use = Use::taken;
    allocated_ += Bytes(blocks_[block].size);
    blocks.push_back(block);
    if (!more) return blocks;
  }
  enlist(rest);
  return blocks;
}

/// Maps memory for a request by whole pages. It takes the unmapped range at the lowest address that
/// is large enough together with the free blocks beside it.
std::optional<BlockAllocator::Block> BlockAllocator::expand(std::int64_t size, std::uint32_t pool) {
  const auto free_bytes = [&](Block block) {
    return block != kNone && blocks_[block].use == Use::free ? blocks_[block].size : 0;
  };
  if (pools_[pool].unmapped.empty()) {
    Range range;
    range.size = kAddressSpace;
    range.address = next_address_;
    range.pool = pool;
    range.use = Use::unmapped;
    next_address_ += kAddressSpace;
    const Block block = make(range);
    segments_.push_back(block);
    enlist(block);
  }
  for (const auto& [address, block] : pools_[pool].unmapped) {
    const Range& range = blocks_[block];
    const std::int64_t before = free_bytes(range.previous);
    if (before + range.size + free_bytes(range.next) < size) continue;
    Block mapped = kNone;
    const std::int64_t wanted = std::min(range.size, up(size - before, Bytes(page(pools_[pool]))));
    if (!map(block, wanted, mapped)) return std::nullopt;
    return mapped;
  }
  INVARIANT(false, "address space never ends");
}

/// Maps the first `bytes` of an unmapped range. `mapped` becomes the free block that they form with
/// the free blocks beside them. Returns false where the driver has no more.
bool BlockAllocator::map(Block block, std::int64_t bytes, Block& mapped) {
  if (!driver_has(bytes)) return false;
  reserve(bytes);
  delist(block);
  if (bytes < blocks_[block].size) enlist(split_off(block, bytes));
  blocks_[block].use = Use::taken;
  allocated_ += Bytes(blocks_[block].size);
  const Block before = blocks_[block].previous;
  const bool merges = before != kNone && blocks_[before].use == Use::free;
  give(block);
  mapped = merges ? before : block;
  return true;
}

std::int64_t BlockAllocator::empty_cache() {
  if (rule_.expandable_segments) {
    std::vector<Block> free;
    for (const Pool& pool : pools_) {
      for (const FreeBlock& one : pool.free) free.push_back(one.block);
    }
    for (const Block block : free) unmap_pages(block);
    return 0;
  }
  return std::int64_t(std::erase_if(segments_, [&](Block block) {
    const Range& range = blocks_[block];
    if (range.use != Use::free || range.next != kNone) return false;
    reserved_ -= Bytes(range.driver);
    delist(block);
    unused_.push_back(block);
    return true;
  }));
}

/// Gives the whole pages of a free block back to the driver.
void BlockAllocator::unmap_pages(Block block) {
  Range& range = blocks_[block];
  const std::int64_t size = page(pools_[range.pool]);
  Block first = block;
  while (blocks_[first].previous != kNone) first = blocks_[first].previous;
  const std::int64_t origin = blocks_[first].address;
  const std::int64_t begin = up(range.address - origin, Bytes(size)) + origin;
  const std::int64_t end = (range.address + range.size - origin) / size * size + origin;
  if (begin >= end) return;
  delist(block);
  Block middle = block;
  if (begin > blocks_[block].address) {
    middle = split_off(block, begin - blocks_[block].address);
    enlist(block);
  }
  if (end < blocks_[middle].address + blocks_[middle].size) {
    enlist(split_off(middle, end - blocks_[middle].address));
  }
  reserved_ -= Bytes(end - begin);
  blocks_[middle].use = Use::unmapped;
  const Block before = blocks_[middle].previous;
  if (before != kNone && blocks_[before].use == Use::unmapped) {
    delist(before);
    middle = merge(before, middle);
  }
  const Block after = blocks_[middle].next;
  if (after != kNone && blocks_[after].use == Use::unmapped) {
    delist(after);
    middle = merge(middle, after);
  }
  enlist(middle);
}

BlockAllocator::Block BlockAllocator::make(const Range& range) {
  if (unused_.empty()) {
    blocks_.push_back(range);
    return Block(blocks_.size() - 1);
  }
  const Block block = unused_.back();
  unused_.pop_back();
  blocks_[block] = range;
  return block;
}

BlockAllocator::Block BlockAllocator::split_off(Block block, std::int64_t size) {
  Range rest = blocks_[block];
  rest.size -= size;
  rest.address += size;
  rest.previous = block;
  rest.driver = 0;
  const Block second = make(rest);
  if (rest.next != kNone) blocks_[rest.next].previous = second;
  blocks_[block].size = size;
  blocks_[block].next = second;
  return second;
}

BlockAllocator::Block BlockAllocator::merge(Block first, Block second) {
  const Range& gone = blocks_[second];
  blocks_[first].size += gone.size;
  blocks_[first].next = gone.next;
  if (gone.next != kNone) blocks_[gone.next].previous = first;
  unused_.push_back(second);
  return first;
}

void BlockAllocator::enlist(Block block) {
  const Range& range = blocks_[block];
  if (range.use == Use::unmapped) {
    pools_[range.pool].unmapped.emplace(range.address, block);
    return;
  }
  blocks_[block].use = Use::free;
  FreeBlocks& free = pools_[range.pool].free;
  free.insert(free.begin() + place_of(block), {range.size, range.address, block});
}

/// Replaces the free block at `place` of the list by `block`, and moves that to its place.
void BlockAllocator::relist(FreeBlocks& free, std::ptrdiff_t place, Block block) {
  const Range& range = blocks_[block];
  blocks_[block].use = Use::free;
  const FreeBlock listed{range.size, range.address, block};
  const auto from = free.begin() + place;
  if (listed.size < from->size) {
    const auto to =
        free.begin() + place_between(free.data(), 0, place, listed.size, listed.address);
    std::move_backward(to, from, from + 1);
    *to = listed;
  } else {
    const auto to =
        free.begin() + place_between(free.data(), place + 1, std::ptrdiff_t(free.size()),
                                     listed.size, listed.address);
    std::move(from + 1, to, from);
    *(to - 1) = listed;
  }
}

void BlockAllocator::delist(Block block) {
  const Range& range = blocks_[block];
  if (range.use == Use::unmapped) {
    pools_[range.pool].unmapped.erase({range.address, block});
  } else {
    FreeBlocks& free = pools_[range.pool].free;
    free.erase(free.begin() + place_of(block));
  }
}

std::ptrdiff_t BlockAllocator::place_of(Block block) const {
  const Range& range = blocks_[block];
  return plimsoll::place_of(pools_[range.pool].free, range.size, range.address);
}

}  // namespace plimsoll
