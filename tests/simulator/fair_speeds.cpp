// Speeds are worked out in rounds: in each, all communications on the links that are full first
// stop to grow.
#include "tests/simulator/fair_speeds.h"

#include <algorithm>

#include "simulator/engine/engine.h"

namespace plimsoll {

std::vector<std::int64_t> fair_speeds(const std::vector<LinkFlow>& flows, std::size_t links) {
  std::vector<std::int64_t> speeds(flows.size()), room(links, kFullSpeed);
  while (true) {
    std::vector<std::int64_t> growing(links);
    for (std::size_t i = 0; i < flows.size(); ++i) {
      for (const std::uint32_t link : flows[i].links)
        growing[link] += flows[i].under_way && speeds[i] == 0 ? 1 : 0;
    }
    std::int64_t least = kFullSpeed + 1;
    for (std::size_t l = 0; l < links; ++l) {
      if (growing[l] > 0) least = std::min(least, room[l] / growing[l]);
    }
    if (least > kFullSpeed) return speeds;
    std::vector<std::size_t> held;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const auto full = [&](std::uint32_t l) {
        return growing[l] > 0 && room[l] / growing[l] == least;
      };
      if (!flows[i].under_way || speeds[i] != 0) continue;
      if (std::any_of(flows[i].links.begin(), flows[i].links.end(), full)) held.push_back(i);
    }
    for (const std::size_t i : held) {
      speeds[i] = least;
      for (const std::uint32_t link : flows[i].links) room[link] -= least;
    }
  }
}

}  // namespace plimsoll
