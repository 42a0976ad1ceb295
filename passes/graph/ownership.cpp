// Owners, fused groups, layouts and broadcasts are computed from sizes.
#include "passes/graph/ownership.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace plimsoll {
namespace {

std::int64_t padded_to(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

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

FusionGroups fuse(std::span<const FusionMember> members, std::span<const std::size_t> order,
                  std::int64_t limit) {
  FusionGroups groups;
  std::int64_t size = 0;
  const FusionMember* last = nullptr;
  for (const std::size_t i : order) {
    const FusionMember& member = members[i];
    const bool joins = last != nullptr && last->dtype == member.dtype &&
                       last->owner == member.owner && !last->alone && !member.alone &&
                       !member.begins && size + member.size <= limit;
    if (!joins) {
      groups.emplace_back();
      size = 0;
    }
    groups.back().push_back(i);
    size += member.size;
    last = &member;
  }
  return groups;
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

FusionGroups fuse_below(std::span<const FusionMember> members, std::int64_t limit) {
  return fuse(members, in_order(members.size()), limit);
}

FusionGroups fuse_sorted(std::span<const FusionMember> members, std::int64_t limit) {
  const auto rank = [](DType dtype) { return dtype == DType::f32 ? 1 : 0; };
  std::vector<std::size_t> order = in_order(members.size());
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return rank(members[a].dtype) < rank(members[b].dtype);
  });
  return fuse(members, order, limit);
}

FusionGroups fuse_until(std::span<const FusionMember> members, std::int64_t limit) {
  struct Open {
    std::size_t group;
    std::int64_t size;
  };
  std::map<std::pair<DType, std::int64_t>, Open> open;
  FusionGroups groups;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const FusionMember& member = members[i];
    if (member.alone) {
      groups.push_back({i});
      continue;
    }
    const auto [at, fresh] = open.try_emplace({member.dtype, member.owner}, Open{groups.size(), 0});
    if (fresh) groups.emplace_back();
    groups[at->second.group].push_back(i);
    at->second.size += member.size;
    if (at->second.size >= limit) open.erase(at);
  }
  return groups;
}

CoalescedLayout coalesced_layout(std::span<const std::int64_t> elements, Bytes element,
                                 Bytes alignment) {
  const std::int64_t multiple = alignment.count() / element.count();
  CoalescedLayout layout;
  for (const std::int64_t count : elements) {
    layout.offsets.push_back(layout.elements);
    layout.lengths.push_back(padded_to(count, multiple));
    layout.elements += layout.lengths.back();
  }
  return layout;
}

ChunkedTensor chunked(std::int64_t elements, std::int64_t ranks) {
  const std::int64_t chunk = (elements + ranks - 1) / ranks;
  return {chunk, chunk * ranks};
}

std::int64_t chunk_elements(std::int64_t elements, std::int64_t ranks, std::int64_t rank) {
  const std::int64_t chunk = chunked(elements, ranks).chunk;
  return std::clamp<std::int64_t>(elements - rank * chunk, 0, chunk);
}

CoalescedLayout coalesced_chunks(std::span<const std::int64_t> elements, std::int64_t ranks) {
  CoalescedLayout layout;
  std::int64_t block = 0;
  for (const std::int64_t count : elements) {
    layout.offsets.push_back(block);
    layout.lengths.push_back(chunked(count, ranks).chunk);
    block += layout.lengths.back();
  }
  layout.elements = block * ranks;
  return layout;
}

MegatronLayout megatron_layout(std::span<const std::int64_t> elements, std::int64_t ranks,
                               std::int64_t bucket_elements, bool high_bus_bandwidth) {
  constexpr std::int64_t kStart = 64, kEnd = 128, kBusBandwidth = std::int64_t{1} << 16;
  std::int64_t multiple = std::lcm(ranks, kEnd);
  if (high_bus_bandwidth) multiple = std::lcm(multiple, kBusBandwidth);
  MegatronLayout layout;
  layout.offsets.resize(elements.size());
  std::int64_t bucket = 0, end = 0;
  bool open = false;
  for (std::size_t i = elements.size(); i-- > 0;) {
    layout.offsets[i] = padded_to(end, kStart);
    end = layout.offsets[i] + elements[i];
    open = end - bucket < bucket_elements;
    if (open) continue;
    bucket = end = padded_to(end, multiple);
    layout.bucket_ends.push_back(end);
  }
  if (open) layout.bucket_ends.push_back(padded_to(end, multiple));
  return layout;
}

}  // namespace plimsoll
