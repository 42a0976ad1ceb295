#include "graph/grid.h"

#include <algorithm>

#include "base/error.h"

namespace plimsoll {

namespace {
constexpr std::array<std::string_view, kAxes> kAxisNames = {"mp", "cp", "sharding", "dp", "pp"};
}  // namespace

std::int64_t Grid::world_size() const {
  std::int64_t product = 1;
  for (std::int64_t d : degree) product *= d;
  return product;
}

Coordinates Grid::coordinates(std::int64_t rank) const {
  INVARIANT(rank >= 0 && rank < world_size(), "rank outside the grid");
  Coordinates at = {};
  for (Axis axis : order) {
    at[std::size_t(axis)] = rank % (*this)[axis];
    rank /= (*this)[axis];
  }
  return at;
}

std::int64_t Grid::rank(const Coordinates& at) const {
  std::int64_t rank = 0;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    rank = rank * (*this)[*axis] + at[std::size_t(*axis)];
  }
  return rank;
}

std::int64_t pipeline_peer(const Grid& grid, std::int64_t rank, std::int64_t stage_offset) {
  Coordinates at = grid.coordinates(rank);
  std::int64_t& stage = at[std::size_t(Axis::pp)];
  const std::int64_t stages = grid[Axis::pp];
  INVARIANT(stage_offset % stages != 0, "a transfer to the stage itself");
  stage = ((stage + stage_offset) % stages + stages) % stages;
  return grid.rank(at);
}

std::vector<std::int64_t> members(const Grid& grid, const Group& group, std::int64_t rank) {
  std::vector<Coordinates> found = {grid.coordinates(rank)};
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    if (!group.axes.has(Axis(axis))) continue;
    const bool ends = group.pipeline_ends && Axis(axis) == Axis::pp;
    std::vector<Coordinates> wider;
    for (const Coordinates& at : found) {
      for (std::int64_t i = 0; i < grid.degree[axis]; ++i) {
        if (ends && i != 0 && i != grid.degree[axis] - 1) continue;
        wider.push_back(at);
        wider.back()[axis] = i;
      }
    }
    found = std::move(wider);
  }
  std::vector<std::int64_t> ranks;
  for (const Coordinates& at : found) ranks.push_back(grid.rank(at));
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::int64_t size(const Grid& grid, const Group& group) {
  std::int64_t product = 1;
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    if (!group.axes.has(Axis(axis))) continue;
    const bool ends = group.pipeline_ends && Axis(axis) == Axis::pp;
    product *= ends ? std::min<std::int64_t>(2, grid.degree[axis]) : grid.degree[axis];
  }
  return product;
}

std::int64_t index_in(const Grid& grid, const Group& group, std::int64_t rank) {
  const std::vector<std::int64_t> ranks = members(grid, group, rank);
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  INVARIANT(found != ranks.end(), "rank is not in the group");
  return found - ranks.begin();
}

std::string_view to_text(Axis axis) { return kAxisNames[std::size_t(axis)]; }

std::optional<Axis> axis_from(std::string_view text) {
  for (std::size_t i = 0; i < kAxes; ++i) {
    if (kAxisNames[i] == text) return Axis(i);
  }
  return std::nullopt;
}

std::string to_text(const Group& group) {
  std::string text;
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    if (!group.axes.has(Axis(axis))) continue;
    if (!text.empty()) text += ',';
    text += kAxisNames[axis];
  }
  if (group.pipeline_ends) text += ":ends";
  return text.empty() ? "none" : text;
}

std::optional<Group> group_from(std::string_view text) {
  Group group;
  if (text.ends_with(":ends")) {
    group.pipeline_ends = true;
    text.remove_suffix(5);
  }
  if (text == "none") return group;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::optional<Axis> axis = axis_from(text.substr(0, comma));
    if (!axis) return std::nullopt;
    group.axes.add(*axis);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return group;
}

}  // namespace plimsoll
