// Ranks of a grid are converted to coordinates, and members of groups listed.
#include "graph/grid.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <span>

#include "base/error.h"

namespace plimsoll {

namespace {
constexpr std::array<std::string_view, kAxes> kAxisNames = {"mp", "cp",  "sharding", "dp",
                                                            "pp", "etp", "ep",       "edp"};
}  // namespace

std::int64_t Grid::world_size() const {
  std::int64_t product = 1;
  for (Axis axis : order) product *= (*this)[axis];
  return product;
}

namespace {

constexpr std::array kExpertAxes = {Axis::etp, Axis::ep, Axis::edp};

std::int64_t number_of(const Grid& grid, std::span<const Axis> axes, const Coordinates& at) {
  std::int64_t number = 0;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis)
    number = number * grid[*axis] + at[std::size_t(*axis)];
  return number;
}

void set_number(const Grid& grid, std::span<const Axis> axes, std::int64_t number,
                Coordinates& at) {
  for (const Axis axis : axes) {
    at[std::size_t(axis)] = number % grid[axis];
    number /= grid[axis];
  }
}

}  // namespace

Coordinates Grid::coordinates(std::int64_t rank) const {
  INVARIANT(rank >= 0 && rank < world_size(), "rank outside the grid");
  Coordinates at = {};
  set_number(*this, order, rank, at);
  set_number(*this, kExpertAxes, number_of(*this, folded(), at), at);
  return at;
}

std::int64_t Grid::rank(const Coordinates& at) const { return number_of(*this, order, at); }

namespace {

/// Returns the axis along which the halves of the data ranks lie.
Axis axis_of_halves(const Grid& grid) {
  return grid[Axis::dp] % 2 == 0 ? Axis::dp : Axis::sharding;
}

}  // namespace

bool has_halves(const Grid& grid) { return grid[axis_of_halves(grid)] % 2 == 0; }

Coordinates partner_of(const Grid& grid, const Coordinates& at) {
  INVARIANT(has_halves(grid), "data ranks that have no halves");
  Coordinates partner = at;
  const Axis axis = axis_of_halves(grid);
  std::int64_t& along = partner[std::size_t(axis)];
  along = (along + grid[axis] / 2) % grid[axis];
  return partner;
}

std::int64_t pipeline_peer(const Grid& grid, std::int64_t rank, std::int64_t stage_offset) {
  Coordinates at = grid.coordinates(rank);
  if (stage_offset == 0) return grid.rank(partner_of(grid, at));
  std::int64_t& stage = at[std::size_t(Axis::pp)];
  const std::int64_t stages = grid[Axis::pp];
  INVARIANT(stage_offset % stages != 0, "a transfer to the stage itself");
  stage = ((stage + stage_offset) % stages + stages) % stages;
  return grid.rank(at);
}

namespace {

/// Coordinates along one axis of the group's members; `at` is that of one of them.
std::vector<std::int64_t> along(const Group& group, Axis axis, std::int64_t degree,
                                std::int64_t at) {
  if (axis == Axis::pp && group.pipeline_ends > 0 && degree > 1)
    return {0, degree - group.pipeline_ends};
  const bool run = axis == Axis::mp && group.mp_run > 0;
  const std::int64_t count = run ? group.mp_run : degree, first = run ? at / count * count : 0;
  std::vector<std::int64_t> found(static_cast<std::size_t>(count));
  std::iota(found.begin(), found.end(), first);
  return found;
}

}  // namespace

bool has_stage(const Grid& grid, const Group& group, std::int64_t stage) {
  const std::int64_t ends = group.pipeline_ends;
  return ends == 0 || stage == 0 || stage == grid[Axis::pp] - ends;
}

std::vector<std::int64_t> members(const Grid& grid, const Group& group, std::int64_t rank) {
  std::vector<Coordinates> found = {grid.coordinates(rank)};
  const auto folded = grid.folded();
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    if (!group.axes.has(Axis(axis))) continue;
    std::vector<Coordinates> wider;
    for (const Coordinates& at : found) {
      for (std::int64_t i : along(group, Axis(axis), grid.degree[axis], at[axis])) {
        Coordinates& next = wider.emplace_back(at);
        next[axis] = i;
        if (axis < kRankAxes) continue;
        const std::int64_t number = number_of(grid, kExpertAxes, next);
        set_number(grid, folded, number, next);
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
    product *= std::int64_t(along(group, Axis(axis), grid.degree[axis], 0).size());
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

std::string to_text(const Group& group) {
  std::string text;
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    if (!group.axes.has(Axis(axis))) continue;
    if (!text.empty()) text += ',';
    text += kAxisNames[axis];
  }
  if (group.pipeline_ends > 0) text += ":ends";
  if (group.pipeline_ends > 1) text += std::to_string(group.pipeline_ends);
  if (group.mp_run > 0) text += ":run" + std::to_string(group.mp_run);
  return text.empty() ? "none" : text;
}

/// Takes a word and the number behind it off the end. Returns -1 where that is no number.
static std::optional<std::int64_t> number_behind(std::string_view& text, std::string_view word) {
  const std::size_t at = text.rfind(word);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view digits = text.substr(at + word.size());
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  text = text.substr(0, at);
  const bool whole = error == std::errc{} && end == digits.data() + digits.size();
  return whole ? number : -1;
}

std::optional<Group> group_from(std::string_view text) {
  Group group;
  if (const auto run = number_behind(text, ":run"); run) {
    if (*run < 1) return std::nullopt;
    group.mp_run = *run;
  }
  if (text.ends_with(":ends")) {
    group.pipeline_ends = 1;
    text.remove_suffix(5);
  } else if (const auto ends = number_behind(text, ":ends"); ends) {
    if (*ends < 2) return std::nullopt;
    group.pipeline_ends = *ends;
  }
  if (text == "none") return group;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const auto axis = std::ranges::find(kAxisNames, text.substr(0, comma));
    if (axis == kAxisNames.end()) return std::nullopt;
    group.axes.add(Axis(axis - kAxisNames.begin()));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return group;
}

}  // namespace plimsoll
