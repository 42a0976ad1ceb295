// The grid of ranks: named axes with degrees, laid out in a declared order, and the groups that
// collectives run over.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

enum class Axis : std::uint8_t { mp, cp, sharding, dp, pp };
inline constexpr std::size_t kAxes = 5;

/// A set of axes: the ranks of a group are those that differ only in these coordinates.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (Axis axis : axes) bits_ |= bit(axis);
  }
  constexpr bool has(Axis axis) const { return (bits_ & bit(axis)) != 0; }
  constexpr void add(Axis axis) { bits_ |= bit(axis); }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr auto operator<=>(const AxisSet&) const = default;

 private:
  static constexpr std::uint8_t bit(Axis axis) { return std::uint8_t(1u << unsigned(axis)); }
  std::uint8_t bits_ = 0;
};

using Coordinates = std::array<std::int64_t, kAxes>;  ///< indexed by Axis

struct Grid {
  std::array<std::int64_t, kAxes> degree = {1, 1, 1, 1, 1};  ///< indexed by Axis
  /// Inner to outer: the first axis changes fastest with the rank number.
  std::array<Axis, kAxes> order = {Axis::mp, Axis::cp, Axis::sharding, Axis::dp, Axis::pp};

  std::int64_t operator[](Axis axis) const { return degree[std::size_t(axis)]; }
  std::int64_t world_size() const;
  Coordinates coordinates(std::int64_t rank) const;
  std::int64_t rank(const Coordinates& at) const;
  bool operator==(const Grid&) const = default;
};

/// Which ranks take part in a collective.
struct Group {
  AxisSet axes;
  /// A sub-range of pp: only the first and the last stage (tied embeddings).
  bool pipeline_ends = false;
  /// A sub-range of mp: as many consecutive ranks, from a multiple of that on (grouped-query
  /// attention: those that hold the same key and value heads). 0: the whole axis.
  std::int64_t mp_run = 0;
  auto operator<=>(const Group&) const = default;
};

/// The rank that is `stage_offset` stages further, round the pipeline: behind the last stage comes
/// the first (interleaved schedules send there). Not a multiple of the stages.
std::int64_t pipeline_peer(const Grid& grid, std::int64_t rank, std::int64_t stage_offset);

/// Members in ascending rank order. `rank` must be one of them for pipeline_ends.
std::vector<std::int64_t> members(const Grid& grid, const Group& group, std::int64_t rank);
std::int64_t size(const Grid& grid, const Group& group);
/// Position of `rank` in members(...).
std::int64_t index_in(const Grid& grid, const Group& group, std::int64_t rank);

std::string_view to_text(Axis axis);
std::optional<Axis> axis_from(std::string_view text);
std::string to_text(const Group& group);  ///< "mp", "sharding,dp", "pp:ends", "mp:run2"
std::optional<Group> group_from(std::string_view text);

}  // namespace plimsoll
