// The grid of ranks has named axes with degrees, laid out in a declared order. Groups of ranks
// along these axes are what collectives run over.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

/// The first five axes number the ranks. The last three number the same ranks of a stage once more,
/// for experts (parallel folding; Megatron-LM core/parallel_state.py, arXiv 2504.14960): etp ranks
/// share each expert, ep ranks share out the experts, and edp ranks have the same ones.
enum class Axis : std::uint8_t { mp, cp, sharding, dp, pp, etp, ep, edp };
inline constexpr std::size_t kRankAxes = 5, kAxes = 8;

/// An AxisSet is a set of axes. The ranks of a group differ only in these coordinates.
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
  std::array<std::int64_t, kAxes> degree = {1, 1, 1, 1, 1, 1, 1, 1};  ///< indexed by Axis
  /// Axes from inner to outer: the first one changes fastest with the rank number.
  std::array<Axis, kRankAxes> order = {Axis::mp, Axis::cp, Axis::sharding, Axis::dp, Axis::pp};

  std::int64_t operator[](Axis axis) const { return degree[std::size_t(axis)]; }
  std::int64_t world_size() const;
  /// Returns the axes that experts number once more: those of the ranks of a stage.
  static constexpr std::array<Axis, 4> folded() {
    return {Axis::mp, Axis::cp, Axis::sharding, Axis::dp};
  }
  /// The rank follows from the axes in `order`, and so do coordinates of experts.
  Coordinates coordinates(std::int64_t rank) const;
  std::int64_t rank(const Coordinates& at) const;
  bool operator==(const Grid&) const = default;
};

/// A Group says which ranks take part in a collective.
struct Group {
  AxisSet axes;
  /// Not 0: only two stages of pp take part, the first one and the one so many before the end,
  /// where 1 is the last one (tied tables).
  std::int64_t pipeline_ends = 0;
  /// So many consecutive ranks of mp take part, counted from a multiple of this number. In
  /// grouped-query attention they hold the same key and value heads. 0: the whole axis.
  std::int64_t mp_run = 0;
  auto operator<=>(const Group&) const = default;
};

/// Returns whether data ranks come as two halves: dp is even, or else sharding.
bool has_halves(const Grid& grid);
/// Returns the place in the other half of the data ranks that is this one's partner.
Coordinates partner_of(const Grid& grid, const Coordinates& at);

/// Returns the rank `stage_offset` stages further round the pipeline. After the last stage comes
/// the first, as interleaved schedules need. 0 stands for the partner at the same stage. Other
/// multiples of the number of stages are not allowed.
std::int64_t pipeline_peer(const Grid& grid, std::int64_t rank, std::int64_t stage_offset);

/// Returns the members in ascending rank order. Axes of experts stand alone or with those that are
/// not folded. With pipeline_ends, `rank` must be one of them.
std::vector<std::int64_t> members(const Grid& grid, const Group& group, std::int64_t rank);
std::int64_t size(const Grid& grid, const Group& group);
/// Returns whether ranks of a stage take part.
bool has_stage(const Grid& grid, const Group& group, std::int64_t stage);
/// Returns the position of `rank` in members(...).
std::int64_t index_in(const Grid& grid, const Group& group, std::int64_t rank);

std::string_view to_text(Axis axis);
std::string to_text(const Group& group);  ///< "mp", "sharding,dp", "pp:ends", "pp:ends2", "mp:run2"
std::optional<Group> group_from(std::string_view text);

}  // namespace plimsoll
