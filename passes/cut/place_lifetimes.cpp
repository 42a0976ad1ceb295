// Lifetimes are placed by first fit, largest first.
#include "passes/cut/place_lifetimes.h"

#include <algorithm>
#include <numeric>

namespace plimsoll {

Bytes place_lifetimes(std::vector<Lifetime>& lifetimes) {
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return lifetimes[a].size > lifetimes[b].size;
  });
  std::vector<std::size_t> placed;  // in order of their offsets
  Bytes extent;
  for (std::size_t i : order) {
    Lifetime& life = lifetimes[i];
    for (std::size_t j : placed) {
      const Lifetime& other = lifetimes[j];
      if (life.first > other.last || other.first > life.last) continue;
      if (life.offset + life.size <= other.offset) break;
      life.offset = std::max(life.offset, other.offset + other.size);
    }
    extent = std::max(extent, life.offset + life.size);
    const auto behind =
        std::upper_bound(placed.begin(), placed.end(), life.offset,
                         [&](Bytes offset, std::size_t j) { return offset < lifetimes[j].offset; });
    placed.insert(behind, i);
  }
  return extent;
}

}  // namespace plimsoll
