// Least costs: the least time of each op of a routine, wherever in the cluster the ranks lie.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/units.h"
#include "graph/program.h"
#include "predict/target.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {

/// Times for which communications fill the links out of a rank, by level of the cluster.
struct LinkTimes {
  std::array<Picoseconds, kMostLevels> at_level = {};
  /// Adds `more` so many times. Throws InfeasibleError beyond the clock's range.
  void add(const LinkTimes& more, std::int64_t times);
  void keep_least(const LinkTimes& other);  ///< at each level
  Picoseconds longest() const { return *std::ranges::max_element(at_level); }
};

/// Finds the least times by the cost model. Safe to share between threads.
class LeastCosts {
 public:
  /// With `kind` local ops have the times of that kind of device, wherever the ranks lie.
  explicit LeastCosts(const CostModel& costs, std::optional<std::size_t> kind = {})
      : costs_(costs), kind_(kind) {}

  /// Returns the least times by op, rounded as the simulator rounds. A time beyond 2^54 ps counts
  /// as 2^54 ps. A local op has the time of the fastest device, a collective that of the cheapest
  /// instance of its group, and a transfer that of the cheapest pair of ranks of `stage` and its
  /// peer stage.
  std::vector<Picoseconds> of(const Routine& routine, const Grid& grid, std::int64_t stage) const;
  /// Returns the least factor by which a routine that is one communication slows kernels on other
  /// streams (simulator/ranks/kernel_delays.h). The factor is 1 where kernels are not slowed, and
  /// for frameworks whose transfers hold up others, or whose hosts wait for communications, since
  /// these waits may end the slowdown. A host that waits for the rows of experts waits for an op
  /// inside a block's call, which ends no slowdown (RankBuilder::wait_for).
  double slowdown(const Routine& routine, const Grid& grid, std::int64_t stage) const;
  /// Returns the times for which a routine that is one communication fills links of a rank, the
  /// least over the ranks that run it. Communications that pass a link at once share it, so no link
  /// takes less time than the sum. A wait for the first byte fills no link. All is 0 unless devices
  /// have streams.
  LinkTimes on_links(const Routine& routine, const Grid& grid, std::int64_t stage) const;
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
  const std::optional<std::size_t> kind_;
  mutable std::mutex mutex_;  // guards the two maps
  mutable std::map<std::tuple<Degrees, Order, Group>, std::vector<GroupSpread>> groups_;
  /// Keys are: ranks, ranks of a stage that follow each other, stages, stage, offset.
  mutable std::map<std::array<std::int64_t, 5>, std::vector<GroupSpread>> transfers_;
};

/// The costs of the layers of one job. They are safe to share between threads.
class ShapeCosts {
 public:
  explicit ShapeCosts(const Target& target) : target_(target) {}

  /// Returns the least costs of this strategy's layers (costs_of_layers() in predict/target.h), of
  /// one kind of device or of the fastest. They live as long as this object.
  const LeastCosts& of(const Strategy& strategy, std::optional<std::size_t> kind = {}) const;

 private:
  struct Scaled {
    CostModel model;
    LeastCosts least;
    Scaled(CostModel scaled, std::optional<std::size_t> kind)
        : model(std::move(scaled)), least(model, kind) {}
  };
  const Target target_;
  mutable std::mutex mutex_;
  using Key = std::pair<double, std::optional<std::size_t>>;  ///< factor, kind of device
  mutable std::map<Key, std::unique_ptr<const Scaled>> known_;
};

}  // namespace plimsoll
