#include "simulator/chunked_allocator.h"

#include "base/error.h"

namespace plimsoll {

Bytes block_bytes(Bytes request, const ChunkRule& rule) {
  return round_up(request + rule.header, rule.alignment);
}

Bytes chunk_bytes(Bytes request, const ChunkRule& rule) {
  return round_up(request + rule.header, rule.quantum);
}

Bytes carved_growth(Bytes small, Bytes large, std::int64_t count, const ChunkRule& rule) {
  const Bytes chunk = chunk_bytes(large, rule);
  const std::int64_t fit = chunk.count() / block_bytes(small, rule).count();
  INVARIANT(fit > 0, "small tensors are smaller than the chunk they are carved from");
  return count / fit * chunk;
}

void ChunkedAllocator::set_free(std::int64_t address, bool free) {
  Range& range = ranges_.at(address);
  range.free = free;
  if (free) {
    free_.emplace(range.size, address);
  } else {
    free_.erase({range.size, address});
  }
}

ChunkedAllocator::Block ChunkedAllocator::take(Bytes request) {
  const Bytes size = block_bytes(request, rule_);
  auto best = free_.lower_bound({size, 0});
  if (best == free_.end()) {
    const Bytes chunk = chunk_bytes(request, rule_);
    reserved_ += chunk;
    chunk_begins_.insert(next_address_);
    ranges_[next_address_] = {chunk, false};
    set_free(next_address_, true);
    best = free_.find({chunk, next_address_});
    next_address_ += chunk.count();
  }
  const auto [room, address] = *best;
  set_free(address, false);
  if (room - size >= rule_.alignment) {
    ranges_[address].size = size;
    ranges_[address + size.count()] = {room - size, false};
    set_free(address + size.count(), true);
  }
  return Block(address);
}

void ChunkedAllocator::give(Block block) {
  auto at = ranges_.find(std::int64_t(block));
  INVARIANT(at != ranges_.end() && !at->second.free, "a block is given back once");
  const auto next = std::next(at);
  if (next != ranges_.end() && next->second.free && !chunk_begins_.contains(next->first)) {
    set_free(next->first, false);
    at->second.size += next->second.size;
    ranges_.erase(next);
  }
  if (at != ranges_.begin() && !chunk_begins_.contains(at->first)) {
    const auto before = std::prev(at);
    if (before->second.free) {
      set_free(before->first, false);
      before->second.size += at->second.size;
      ranges_.erase(at);
      at = before;
    }
  }
  set_free(at->first, true);
}

}  // namespace plimsoll
