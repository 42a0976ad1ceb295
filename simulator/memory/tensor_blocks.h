// Tensor blocks: blocks of an allocator with the tensors that they were taken for, and their peak.
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
  std::string name;  ///< the tensor's in its routine, or that of a buffer which it fills
  TensorRole role = TensorRole::activation;
  std::int64_t count = 0;
  Bytes bytes;  ///< of all of them, in the allocator's rounding
  bool operator==(const AliveTensors&) const = default;
};
/// Sorts by size, the largest first. Equal sizes keep their order.
void sort_largest_first(std::vector<AliveTensors>& list);

/// The memory that one class of ranks takes from the framework's allocator.
struct AllocatorUse {
  Bytes allocated;                  ///< peak of the blocks handed out
  Bytes reserved;                   ///< peak of the memory taken from the driver
  BytesByRole by_role;              ///< of `allocated`, at its first peak
  std::vector<AliveTensors> alive;  ///< at that peak, largest first; where asked for
  std::int64_t retries = 0;    ///< times that it gave all free blocks back because memory was short
  bool out_of_memory = false;  ///< all other fields say how far the replay came
};

/// Takes blocks from a BlockAllocator for tensors, and keeps their peak by role and by name.
class TensorBlocks {
 public:
  using Block = BlockAllocator::Block;
  /// Thrown where the allocator is out of memory, and where stop_at() is reached.
  struct Stop {};

  TensorBlocks(const Allocator& rule, Bytes limit) : allocator_(rule, limit) {}

  /// Makes take() throw Stop once `most` bytes are handed out.
  void stop_at(std::optional<Bytes> most) { stop_at_ = most; }

  /// Memory that was freed on a stream is handed out again on the same stream only.
  Block take(Bytes bytes, std::uint32_t name, TensorRole role, std::uint32_t stream);
  void give(Block block);
  void give(std::vector<Block>& blocks);  ///< gives all of them, and clears the list

  Bytes most_allocated() const { return use_.allocated; }
  Bytes most_reserved() const { return allocator_.most_reserved(); }
  AllocatorUse use() const;
  std::vector<AliveTensors> alive(const TensorNames& names) const;

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
