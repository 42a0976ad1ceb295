// Finds the ways in which a group can lie in the cluster once for each grid and group.
#include "planner/bounds/least_costs.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "graph/op_table.h"
#include "planner/bounds/call_path.h"
#include "simulator/costs/async_products.h"
#include "simulator/costs/layer_factors.h"

namespace plimsoll {

namespace {

/// The longest time that is told from longer ones, twice the longest of a plan's timeline. Some
/// hundreds of such times still fit the clock.
constexpr Picoseconds kLongEnough{std::int64_t{1} << 54};

Picoseconds clamped(Seconds time) {
  return time < kLongEnough.seconds() ? to_picoseconds(time) : kLongEnough;
}

}  // namespace

void LinkTimes::add(const LinkTimes& more, std::int64_t times) {
  for (std::size_t level = 0; level < kMostLevels; ++level)
    at_level[level] += repeated(more.at_level[level], times);
}

void LinkTimes::keep_least(const LinkTimes& other) {
  for (std::size_t level = 0; level < kMostLevels; ++level)
    at_level[level] = std::min(at_level[level], other.at_level[level]);
}

std::vector<Picoseconds> LeastCosts::of(const Routine& routine, const Grid& grid,
                                        std::int64_t stage) const {
  std::vector<Picoseconds> durations;
  durations.reserve(routine.ops.size());
  for (std::size_t i = 0; i < routine.ops.size(); ++i) {
    durations.push_back(communicates(routine.ops[i].kind)
                            ? communication(routine, i, grid, stage)
                            : local(routine.ops[i], routine.tensors, grid));
  }
  return durations;
}

Picoseconds LeastCosts::local(const Op& op, std::span<const Tensor> tensors,
                              const Grid& grid) const {
  if (kind_) return clamped(costs_.local(op, tensors, *kind_).time);
  if (costs_.device_kinds() == 1) return clamped(costs_.local(op, tensors).time);
  Picoseconds least = kLongEnough;
  for (const auto& [kind, count] : devices_by_kind(costs_.cluster(), grid.world_size())) {
    least = std::min(least, clamped(costs_.local(op, tensors, kind).time));
  }
  return least;
}

Picoseconds LeastCosts::communication(const Routine& routine, std::size_t index, const Grid& grid,
                                      std::int64_t stage) const {
  const Op& op = routine.ops[index];
  std::optional<Picoseconds> least;
  for (const GroupSpread& spread : spreads_of(op, grid, stage)) {
    const Estimate whole = costs_.communication(op, routine.tensors, spread);
    for (std::size_t kind = 0; kind < costs_.device_kinds(); ++kind) {
      const Estimate left =
          exposed_communication(routine, index, whole, spread.ranks, costs_, kind);
      least = std::min(least.value_or(kLongEnough), clamped(left.time));
    }
  }
  return least.value_or(Picoseconds());
}

double LeastCosts::slowdown(const Routine& routine, const Grid& grid, std::int64_t stage) const {
  const Framework& framework = costs_.framework();
  const bool held = framework.host.waits.transfers_hold != TransfersHold::nothing ||
                    framework.host.waits.for_batch || framework.host.waits.for_gathers ||
                    framework.host.waits.for_launches;
  if (costs_.execution() != Execution::streams || held) return 1;
  std::optional<double> least;
  for (const GroupSpread& spread : spreads_of(routine.ops[0], grid, stage)) {
    for (std::size_t kind = 0; kind < costs_.device_kinds(); ++kind) {
      const double slowdown =
          costs_.slowdowns(routine.ops[0], routine.tensors, spread, kind).compute;
      least = std::min(least.value_or(slowdown), slowdown);
    }
  }
  return std::max(1.0, least.value_or(1));
}

LinkTimes LeastCosts::on_links(const Routine& routine, const Grid& grid, std::int64_t stage) const {
  if (costs_.execution() != Execution::streams) return {};
  const Op& op = routine.ops[0];
  std::optional<LinkTimes> least;
  for (const GroupSpread& spread : spreads_of(op, grid, stage)) {
    const LinkUse use = costs_.link_use(op, routine.tensors, spread);
    const Picoseconds whole = clamped(costs_.communication(op, routine.tensors, spread).time);
    LinkTimes filled;
    for (std::size_t level = 0; level < kMostLevels; ++level) {
      const bool passes = (use.links >> 2 * level & 1) != 0;
      if (passes) filled.at_level[level] = std::max(whole - use.latency, Picoseconds());
    }
    if (!least) least = filled;
    least->keep_least(filled);
  }
  return least.value_or(LinkTimes());
}

std::vector<GroupSpread> LeastCosts::spreads_of(const Op& op, const Grid& grid,
                                                std::int64_t stage) const {
  const auto* transfer = std::get_if<TransferParams>(&op.params);
  return transfer != nullptr ? transfer_spreads(grid, stage, transfer->stage_offset)
                             : group_spreads(grid, std::get<CollectiveParams>(op.params).group);
}

std::vector<GroupSpread> LeastCosts::group_spreads(const Grid& grid, const Group& group) const {
  const std::tuple key(grid.degree, grid.order, group);
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = groups_.find(key); known != groups_.end()) return known->second;
  }
  const std::int64_t ranks = grid.world_size();
  std::set<GroupSpread> found;
  std::vector<bool> seen(std::size_t(ranks), false);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    if (seen[std::size_t(rank)]) continue;
    const std::int64_t stage = grid.coordinates(rank)[std::size_t(Axis::pp)];
    if (!has_stage(grid, group, stage)) continue;
    const std::vector<std::int64_t> instance = members(grid, group, rank);
    for (std::int64_t member : instance) seen[std::size_t(member)] = true;
    found.insert(costs_.spread(instance));
  }
  const std::lock_guard lock(mutex_);
  return groups_.try_emplace(key, found.begin(), found.end()).first->second;
}

std::vector<GroupSpread> LeastCosts::transfer_spreads(const Grid& grid, std::int64_t stage,
                                                      std::int64_t offset) const {
  std::int64_t inner = 1;  // ranks that follow each other on a stage
  for (const Axis axis : grid.order) {
    if (axis == Axis::pp) break;
    inner *= grid[axis];
  }
  const std::int64_t ranks = grid.world_size(), stages = grid[Axis::pp];
  const std::array key{ranks, inner, stages, stage, offset};
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = transfers_.find(key); known != transfers_.end()) return known->second;
  }
  std::set<GroupSpread> found;
  for (std::int64_t first = stage * inner; first < ranks; first += stages * inner) {
    for (std::int64_t rank = first; rank < first + inner; ++rank) {
      const std::int64_t peer = pipeline_peer(grid, rank, offset);
      found.insert(costs_.spread(std::array{std::min(rank, peer), std::max(rank, peer)}));
    }
  }
  const std::lock_guard lock(mutex_);
  return transfers_.try_emplace(key, found.begin(), found.end()).first->second;
}

const LeastCosts& ShapeCosts::of(const Strategy& strategy, std::optional<std::size_t> kind) const {
  const auto& fitted = target_.costs->fitted();
  const double factor =
      fitted ? layer_factor(fitted->layers, layer_shape(target_.job, strategy)).factor : 1;
  const std::lock_guard lock(mutex_);
  std::unique_ptr<const Scaled>& known = known_[{factor, kind}];
  if (!known) known = std::make_unique<const Scaled>(costs_of_layers(target_, strategy), kind);
  return known->least;
}

}  // namespace plimsoll
