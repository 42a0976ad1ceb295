// Counts blocks by role, and lists the largest.
#include "simulator/memory/tensor_blocks.h"

#include <algorithm>
#include <map>
#include <utility>

namespace plimsoll {

void sort_largest_first(std::vector<AliveTensors>& list) {
  std::stable_sort(list.begin(), list.end(),
                   [](const AliveTensors& a, const AliveTensors& b) { return a.bytes > b.bytes; });
}

TensorBlocks::Block TensorBlocks::take(Bytes bytes, std::uint32_t name, TensorRole role,
                                       std::uint32_t stream) {
  const std::optional<Block> block = allocator_.take(bytes, stream);
  if (!block) {
    use_.out_of_memory = true;
    throw Stop{};
  }
  if (*block >= owners_.size()) owners_.resize(*block + 1);
  owners_[*block] = {true, name, role};
  by_role_[std::size_t(role)] += allocator_.bytes(*block);
  if (allocator_.allocated() > use_.allocated) {
    use_.allocated = allocator_.allocated();
    use_.by_role = by_role_;
    if (use_.allocated == stop_at_) throw Stop{};
  }
  return *block;
}

void TensorBlocks::give(Block block) {
  Owner& owner = owners_[block];
  by_role_[std::size_t(owner.role)] -= allocator_.bytes(block);
  owner.alive = false;
  allocator_.give(block);
}

void TensorBlocks::give(std::vector<Block>& blocks) {
  for (const Block block : blocks) give(block);
  blocks.clear();
}

AllocatorUse TensorBlocks::use() const {
  AllocatorUse use = use_;
  use.reserved = allocator_.most_reserved();
  use.retries = allocator_.retries();
  return use;
}

std::vector<AliveTensors> TensorBlocks::alive(const TensorNames& names) const {
  std::map<std::pair<std::uint32_t, TensorRole>, AliveTensors> by_name;
  for (std::size_t block = 0; block < owners_.size(); ++block) {
    if (!owners_[block].alive) continue;
    AliveTensors& same = by_name[{owners_[block].name, owners_[block].role}];
    same.name = names[owners_[block].name];
    same.role = owners_[block].role;
    same.bytes += allocator_.bytes(Block(block));
    ++same.count;
  }
  std::vector<AliveTensors> list;
  for (auto& [key, same] : by_name) list.push_back(std::move(same));
  sort_largest_first(list);
  return list;
}

}  // namespace plimsoll
