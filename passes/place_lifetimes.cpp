#include "passes/place_lifetimes.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace plimsoll {

Bytes place_lifetimes(std::vector<Lifetime>& lifetimes) {
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return lifetimes[a].size > lifetimes[b].size;
  });
  std::vector<std::size_t> placed;
  Bytes extent;
  for (std::size_t i : order) {
    Lifetime& life = lifetimes[i];
    std::vector<std::pair<Bytes, Bytes>> taken;
    for (std::size_t j : placed) {
      const Lifetime& other = lifetimes[j];
      if (life.first <= other.last && other.first <= life.last)
        taken.emplace_back(other.offset, other.offset + other.size);
    }
    std::sort(taken.begin(), taken.end());
    for (const auto& [begin, end] : taken) {
      if (life.offset + life.size <= begin) break;
      life.offset = std::max(life.offset, end);
    }
    extent = std::max(extent, life.offset + life.size);
    placed.push_back(i);
  }
  return extent;
}

}  // namespace plimsoll
