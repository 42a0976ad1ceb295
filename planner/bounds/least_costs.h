// Least costs: what each op of a routine takes at least, wherever in the cluster its ranks lie.
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

/// Asks the cost model and nothing else. Safe to share between threads.
class LeastCosts {
 public:
  explicit LeastCosts(const CostModel& costs) : costs_(costs) {}

  /// By op, rounded as the simulator rounds; a time beyond 2^54 ps counts as that. A local op: on
  /// the fastest device. A collective: of the cheapest instance of its group on the grid. A
  /// transfer: of the cheapest pair of ranks of `stage` and its peer stage.
  std::vector<Picoseconds> of(const Routine& routine, const Grid& grid, std::int64_t stage) const;
  /// How much longer at least kernels take beside a routine that is one communication, on streams
  /// of their own (simulator/ranks/kernel_delays.h); 1 where they do not or where something that is
  /// not known here may end it: frameworks whose transfers or hosts hold up others.
  double slowdown(const Routine& routine, const Grid& grid, std::int64_t stage) const;
  const CostModel& model() const { return costs_; }

 private:
  using Degrees = std::array<std::int64_t, kAxes>;
  using Order = std::array<Axis, kAxes>;
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
  /// By ranks, those of a stage that follow each other, stages, stage, offset.
  mutable std::map<std::array<std::int64_t, 5>, std::vector<GroupSpread>> transfers_;
};

}  // namespace plimsoll
