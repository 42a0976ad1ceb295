// Tensor blocks: blocks of an allocator with what they were taken for, and the most there was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "graph/tensor.h"
#include "simulator/memory/block_allocator.h"
#include "simulator/memory/routine_events.h"

namespace plimsoll {

/// Tensors of one name that are alive together.
struct AliveTensors {
  std::string name;  ///< of the tensor in its routine, of the buffer where it has one to itself
  TensorRole role = TensorRole::activation;
  std::int64_t count = 0;
  Bytes bytes;  ///< of all of them, as the allocator counts them
  bool operator==(const AliveTensors&) const = default;
};
/// Sorts by size, the largest first. Equal sizes keep their order.
void sort_largest_first(std::vector<AliveTensors>& list);

/// The memory that one class of ranks takes of the framework's allocator.
struct AllocatorUse {
  Bytes allocated;      ///< peak of the blocks handed out, as their allocator counts them
  Bytes reserved;       ///< peak of what it took of the driver
  BytesByRole by_role;  ///< of `allocated`, at its first peak
  std::vector<AliveTensors> alive;  ///< then, largest first; where asked for
  std::int64_t retries = 0;  ///< times that it gave back all it kept, since the driver had no more
  bool out_of_memory = false;  ///< the rest is as far as it came
};

class TensorBlocks {
 public:
  using Block = BlockAllocator::Block;
  /// Thrown where the allocator has no more, and where stop_at is reached.
  struct Stop {};

  TensorBlocks(const Allocator& rule, Bytes limit) : allocator_(rule, limit) {}

  /// Ends where so much is handed out.
  void stop_at(std::optional<Bytes> most) { stop_at_ = most; }

  /// `stream`: what was freed is handed out again on the same one only.
  Block take(Bytes bytes, std::uint32_t name, TensorRole role, std::uint32_t stream);
  void give(Block block);
  void give(std::vector<Block>& blocks);  ///< all of them; none are left

  Bytes most_allocated() const { return use_.allocated; }
  Bytes most_reserved() const { return allocator_.most_reserved(); }
  AllocatorUse use() const;
  std::vector<AliveTensors> alive(const Names& names) const;

 private:
  struct Owner {
    bool alive = false;
    std::uint32_t name = 0;
    TensorRole role = TensorRole::activation;
  };

  BlockAllocator allocator_;
  std::vector<Owner> owners_;  // by block
  BytesByRole by_role_ = {};
  std::optional<Bytes> stop_at_;
  AllocatorUse use_;
};

}  // namespace plimsoll
