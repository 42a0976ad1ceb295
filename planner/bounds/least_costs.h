// Least costs: the least time of each op of a routine, wherever in the cluster the ranks lie.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "base/units.h"
#include "graph/program.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {

/// Finds the least times by the cost model. Safe to share between threads.
class LeastCosts {
 public:
  explicit LeastCosts(const CostModel& costs) : costs_(costs) {}

  /// Returns the least times by op, rounded as the simulator rounds. A time beyond 2^54 ps counts
  /// as 2^54 ps. A local op has the time of the fastest device, a collective that of the cheapest
  /// instance of its group, and a transfer that of the cheapest pair of ranks of `stage` and its
  /// peer stage.
  std::vector<Picoseconds> of(const Routine& routine, const Grid& grid, std::int64_t stage) const;
  /// Returns the least factor by which a routine that is one communication slows kernels on other
  /// streams (simulator/ranks/kernel_delays.h). The factor is 1 where kernels are not slowed, and
  /// for frameworks whose transfers or hosts hold up others, since these may end the slowdown.
  double slowdown(const Routine& routine, const Grid& grid, std::int64_t stage) const;
  const CostModel& model() const { return costs_; }

 private:
  using Degrees = std::array<std::int64_t, kAxes>;
  using Order = std::array<Axis, kRankAxes>;
  Picoseconds local(const Op& op, std::span<const Tensor> tensors, const Grid& grid) const;
  Picoseconds communication(const Routine& routine, std::size_t index, const Grid& grid,
                            std::int64_t stage) const;
  std::vector<GroupSpread> spreads_of(const Op& op, const Grid& grid, std::int64_t stage) const;
  std::vector<GroupSpread> group_spreads(const Grid& grid, const Group& group) const;
  std::vector<GroupSpread> transfer_spreads(const Grid& grid, std::int64_t stage,
                                            std::int64_t offset) const;

  const CostModel& costs_;
  mutable std::mutex mutex_;  // guards the two maps
  mutable std::map<std::tuple<Degrees, Order, Group>, std::vector<GroupSpread>> groups_;
  /// Keys are: ranks, ranks of a stage that follow each other, stages, stage, offset.
  mutable std::map<std::array<std::int64_t, 5>, std::vector<GroupSpread>> transfers_;
};

}  // namespace plimsoll
