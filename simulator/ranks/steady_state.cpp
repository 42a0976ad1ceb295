// Compares the ends of a step with the beginnings of the steps before it.
#include "simulator/ranks/steady_state.h"

#include <algorithm>

namespace plimsoll {
namespace {

Picoseconds latest(std::span<const Picoseconds> times) {
  return *std::max_element(times.begin(), times.end());
}

bool shifted_alike(std::span<const Picoseconds> from, std::span<const Picoseconds> to) {
  for (std::size_t rank = 1; rank < from.size(); ++rank) {
    if (to[rank] - from[rank] != to[0] - from[0]) return false;
  }
  return true;
}

}  // namespace

std::optional<Picoseconds> cycle_time(std::span<const std::vector<Picoseconds>> begun,
                                      std::span<const Picoseconds> ends) {
  for (std::size_t c = 1; c <= begun.size(); ++c) {
    if (shifted_alike(begun[begun.size() - c], ends)) return mean_step(begun, ends, c);
  }
  return std::nullopt;
}

Picoseconds mean_step(std::span<const std::vector<Picoseconds>> begun,
                      std::span<const Picoseconds> ends, std::size_t steps) {
  const auto count = std::int64_t(steps);
  const Picoseconds all = latest(ends) - latest(begun[begun.size() - steps]);
  return Picoseconds((all.count() + count - 1) / count);
}

}  // namespace plimsoll
