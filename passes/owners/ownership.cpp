// Owners and fused groups are computed from sizes.
#include "passes/owners/ownership.h"

#include <algorithm>
#include <numeric>

namespace plimsoll {
namespace {

std::vector<std::size_t> in_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<std::int64_t> least_loaded(std::span<const std::int64_t> sizes,
                                       std::span<const std::size_t> order, std::int64_t ranks,
                                       std::span<const std::int64_t> held) {
  std::vector<std::int64_t> loads(held.begin(), held.end()), owners(sizes.size());
  loads.resize(std::size_t(ranks), 0);
  for (const std::size_t i : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    owners[i] = least - loads.begin();
    *least += sizes[i];
  }
  return owners;
}

}  // namespace

std::vector<std::int64_t> prefix_owners(std::span<const std::int64_t> sizes, std::int64_t ranks) {
  __extension__ using Wide = __int128;
  const Wide total = std::accumulate(sizes.begin(), sizes.end(), Wide{0});
  std::vector<std::int64_t> owners;
  Wide before = 0;
  std::int64_t rank = 0;
  for (const std::int64_t size : sizes) {
    if (before * ranks > total * (rank + 1)) ++rank;
    owners.push_back(rank);
    before += size;
  }
  return owners;
}

std::vector<std::int64_t> greedy_owners(std::span<const std::int64_t> sizes, std::int64_t ranks,
                                        std::span<const std::int64_t> held) {
  return least_loaded(sizes, in_order(sizes.size()), ranks, held);
}

std::vector<std::int64_t> sorted_greedy_owners(std::span<const std::int64_t> sizes,
                                               std::int64_t ranks,
                                               std::span<const std::int64_t> held) {
  std::vector<std::size_t> order = in_order(sizes.size());
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  return least_loaded(sizes, order, ranks, held);
}

std::vector<std::vector<std::size_t>> fuse_below(std::span<const FusionMember> members,
                                                 std::int64_t limit) {
  std::vector<std::vector<std::size_t>> groups;
  std::int64_t size = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const FusionMember& member = members[i];
    const FusionMember* last = i > 0 ? &members[i - 1] : nullptr;
    const bool joins = last != nullptr && last->dtype == member.dtype &&
                       last->owner == member.owner && !last->alone && !member.alone &&
                       !member.begins && size + member.size <= limit;
    if (!joins) {
      groups.emplace_back();
      size = 0;
    }
    groups.back().push_back(i);
    size += member.size;
  }
  return groups;
}

}  // namespace plimsoll
