// The grid of a strategy's ranks, and which of them share or differ in what.
#include <algorithm>

#include "models/framework/framework.h"
#include "passes/strategy/stage_layout.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

std::array<Axis, kRankAxes> axes_of(RankOrder order) {
  constexpr std::array<std::array<Axis, 3>, std::size(kRankOrders)> kOuter = {{
      {Axis::sharding, Axis::dp, Axis::pp},
      {Axis::sharding, Axis::pp, Axis::dp},
      {Axis::pp, Axis::sharding, Axis::dp},
      {Axis::dp, Axis::sharding, Axis::pp},
      {Axis::dp, Axis::pp, Axis::sharding},
      {Axis::pp, Axis::dp, Axis::sharding},
  }};
  const auto& outer = kOuter[std::size_t(order)];
  return {Axis::mp, Axis::cp, outer[0], outer[1], outer[2]};
}

Grid grid_of(const Strategy& strategy) {
  Grid grid;
  grid.order = axes_of(strategy.rank_order);
  grid.degree[static_cast<std::size_t>(Axis::mp)] = strategy.mp;
  grid.degree[static_cast<std::size_t>(Axis::cp)] = strategy.cp;
  grid.degree[static_cast<std::size_t>(Axis::sharding)] = strategy.sharding_degree;
  grid.degree[static_cast<std::size_t>(Axis::dp)] = strategy.dp;
  grid.degree[static_cast<std::size_t>(Axis::pp)] = strategy.pp;
  if (!experts_apart(strategy)) return grid;
  std::int64_t folded = 1;
  for (const Axis axis : grid.folded()) folded *= grid[axis];
  const std::int64_t etp = experts_tensor_parallel(strategy);
  grid.degree[static_cast<std::size_t>(Axis::etp)] = etp;
  grid.degree[static_cast<std::size_t>(Axis::ep)] = strategy.ep;
  grid.degree[static_cast<std::size_t>(Axis::edp)] =
      std::max<std::int64_t>(folded / (etp * strategy.ep), 1);
  return grid;
}

std::int64_t experts_tensor_parallel(const Strategy& strategy) {
  return strategy.experts.etp > 0 ? strategy.experts.etp : strategy.ep > 1 ? 1 : strategy.mp;
}

bool experts_apart(const Strategy& strategy) {
  return strategy.ep > 1 || experts_tensor_parallel(strategy) != strategy.mp;
}

bool needs_sequence_parallel(const Strategy& strategy) {
  return strategy.mp > 1 && experts_apart(strategy);
}

bool same_ranks(const Strategy& strategy, RankOrder a, RankOrder b) {
  const Grid grid = grid_of(strategy);
  const auto numbered = [&](RankOrder order) {
    std::vector<Axis> axes;
    for (const Axis axis : axes_of(order)) {
      if (grid[axis] > 1) axes.push_back(axis);
    }
    return axes;
  };
  return numbered(a) == numbered(b);
}

std::int64_t optimizer_shards(const Strategy& strategy) {
  return strategy.sharding_stage > 0 ? strategy.sharding_degree * strategy.cp : 1;
}

AxisSet shard_axes(const Strategy& strategy) {
  AxisSet axes;
  if (strategy.sharding_stage == 0) return axes;
  if (strategy.cp > 1) axes.add(Axis::cp);
  if (strategy.sharding_degree > 1) axes.add(Axis::sharding);
  return axes;
}

bool classes_by_owner(const Strategy& strategy) {
  return strategy.sharding_stage > 0 && strategy.owners.sharding_owner != ShardingOwner::elements;
}

std::int64_t rank_classes(const Strategy& strategy) {
  return strategy.pp * (classes_by_owner(strategy) ? strategy.sharding_degree : 1);
}

Bytes memory_outside_program(const Job& job, const Strategy& strategy, const Framework& framework) {
  Bytes total = framework.memory.process.context;
  const auto add = [&](std::int64_t ranks) {
    if (ranks < 2) return;
    total += ranks == 2 ? framework.memory.process.pair_communicator
                        : framework.memory.process.communicator;
  };
  add(strategy.mp);
  // Ranks that share a key and value head, where they are not all of mp.
  if (job.kv_heads > 1 && strategy.mp > job.kv_heads) add(strategy.mp / job.kv_heads);
  add(strategy.pp);
  add(strategy.cp);
  if (strategy.dp * strategy.sharding_degree > 1)
    add(strategy.cp * strategy.dp * strategy.sharding_degree);
  if (strategy.dp > 1 && strategy.sharding_degree > 1) {
    add(strategy.sharding_degree);
    add(strategy.dp);
  }
  // Over one axis alone the norm is summed by that axis' communicator.
  const int split_over =
      int(strategy.mp > 1) + int(strategy.pp > 1) + int(strategy.sharding_degree > 1);
  if (split_over > 1) add(strategy.mp * strategy.pp * strategy.sharding_degree);
  const bool shares = job.tied_embeddings || job.mtp;  // the embedding, with the head or modules
  if (shares && strategy.pp > 2 && stage_of_tied_table(job, strategy) > 0) add(2);
  return total;
}

}  // namespace plimsoll
