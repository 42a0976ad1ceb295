// Resolves the channels of the Programs on the grid of ranks.
#include "simulator/ranks/topology.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "simulator/costs/async_products.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t kUnset = ~std::uint32_t{0};

/// Equal values get equal small numbers, in order of first appearance.
template <class Value>
class Numbering {
 public:
  std::uint32_t operator()(const Value& value) {
    return numbers_.try_emplace(value, std::uint32_t(numbers_.size())).first->second;
  }
  std::size_t size() const { return numbers_.size(); }

 private:
  std::map<Value, std::uint32_t> numbers_;
};

/// Costs of the ops of one channel of one Expansion, by how the ranks lie. Each combination is
/// computed once.
class ChannelCosts {
 public:
  ChannelCosts(std::span<const Expansion> expansions, const CostModel& costs,
               RankTopology& topology)
      : expansions_(expansions), costs_(costs), topology_(topology) {
    for (const Expansion& expansion : expansions) last_.emplace_back(expansion.channels.size());
  }

  std::uint32_t of(std::size_t of, std::uint32_t channel, const GroupSpread& spread) {
    Last& last = last_[of][channel];  // neighbours mostly lie alike
    if (last.cost == kUnset || last.spread != spread) last = {spread, find(of, channel, spread)};
    return last.cost;
  }

 private:
  struct Last {
    GroupSpread spread;
    std::uint32_t cost = kUnset;
  };

  std::uint32_t find(std::size_t of, std::uint32_t channel, const GroupSpread& spread) {
    const auto [at, added] = known_.try_emplace({of, channel, spread}, 0);
    if (!added) return at->second;
    const Expansion& expansion = expansions_[of];
    const bool processes = costs_.execution() == Execution::processes;
    const bool streams = costs_.execution() == Execution::streams;
    std::vector<LinkUse> uses;
    std::vector<Estimate> estimates;
    std::vector<OverlapCurves::Slowdowns> slowdowns;
    std::vector<MutualSlowdown> mutual;
    std::vector<double> times;
    for (const ChannelOp& channel_op : expansion.channel_ops) {
      if (channel_op.channel != channel) continue;
      const Routine& routine = expansion.program->at(channel_op.routine);
      const Estimate whole =
          costs_.communication(routine.ops[channel_op.op], routine.tensors, spread);
      estimates.push_back(
          exposed_communication(routine, channel_op.op, whole, spread.ranks, costs_, kind_of(of)));
      times.push_back(estimates.back().time.value());
      times.push_back(double(estimates.back().provenance));
      if (streams) {
        uses.push_back(costs_.link_use(routine.ops[channel_op.op], routine.tensors, spread));
        times.push_back(double(uses.back().links));
        times.push_back(double(uses.back().latency.count()));
        slowdowns.push_back(
            costs_.slowdowns(routine.ops[channel_op.op], routine.tensors, spread, kind_of(of)));
        times.push_back(slowdowns.back().compute);
        times.push_back(slowdowns.back().communication);
      }
      if (!processes) continue;
      mutual.push_back(costs_.mutual_slowdown(routine.ops[channel_op.op], routine.tensors, spread));
      add_numbers(mutual.back(), times);
    }
    at->second = numbers_(times);
    if (at->second == topology_.costs.size()) {
      topology_.costs.push_back(std::move(estimates));
      if (streams) topology_.link_uses.push_back(std::move(uses));
      if (streams) topology_.slowdowns.push_back(std::move(slowdowns));
      if (processes) topology_.mutual_slowdowns.push_back(std::move(mutual));
    }
    return at->second;
  }

  /// The kinds of the devices that an Expansion is on.
  std::size_t kind_of(std::size_t expansion) const {
    return expansion / (expansions_.size() / costs_.device_kinds());
  }

  static void add_numbers(const MutualSlowdown& slowdown, std::vector<double>& to) {
    for (const auto* speeds : {&slowdown.communication, &slowdown.compute}) {
      to.insert(to.end(), speeds->begin(), speeds->end());
    }
    to.push_back(double(slowdown.latency.count()));
    to.push_back(slowdown.sends + 2 * slowdown.receives);
  }

  std::span<const Expansion> expansions_;
  const CostModel& costs_;
  RankTopology& topology_;
  std::map<std::tuple<std::size_t, std::uint32_t, GroupSpread>, std::uint32_t> known_;
  std::vector<std::vector<Last>> last_;  ///< [expansion][channel]: the answer before
  Numbering<std::vector<double>> numbers_;
};

/// On the node of one of `ranks` that has most of them: instances of the group whose members there
/// are of the same stages, which do the same at the same time.
std::int64_t at_once(const Grid& grid, const Group& group, std::span<const std::int64_t> ranks,
                     std::int64_t per_node) {
  std::int64_t most = 1;
  std::int64_t seen = -1;
  for (std::int64_t member : ranks) {
    const std::int64_t node = member / per_node;
    if (std::exchange(seen, node) == node) continue;
    const auto stage = [&](std::int64_t rank) {
      return grid.coordinates(rank)[std::size_t(Axis::pp)];
    };
    std::set<std::int64_t> instances;
    const std::int64_t end = std::min((node + 1) * per_node, grid.world_size());
    for (std::int64_t rank = node * per_node; rank < end; ++rank) {
      if (stage(rank) == stage(member)) instances.insert(members(grid, group, rank).front());
    }
    most = std::max(most, std::int64_t(instances.size()));
  }
  return most;
}

/// For transfers: ranks of one stage on a node.
std::int64_t transfers_at_once(const Grid& grid, std::span<const std::int64_t> pair,
                               std::int64_t per_node) {
  std::int64_t most = 1;
  for (std::int64_t member : pair) {
    const std::int64_t stage = grid.coordinates(member)[std::size_t(Axis::pp)];
    const std::int64_t first = member / per_node * per_node;
    std::int64_t count = 0;
    for (std::int64_t r = first; r < std::min(first + per_node, grid.world_size()); ++r) {
      count += grid.coordinates(r)[std::size_t(Axis::pp)] == stage;
    }
    most = std::max(most, count);
  }
  return most;
}

/// The instance of `group` that `rank` is in, found or made. `by_rank`: those of the group.
std::uint32_t instance_of(const Grid& grid, const Group& group, std::int64_t rank,
                          const CostModel& costs, std::vector<std::uint32_t>& by_rank,
                          RankTopology& topology) {
  if (by_rank[std::size_t(rank)] == kUnset) {
    const auto index = std::uint32_t(topology.instances.size());
    std::vector<std::int64_t> ranks = members(grid, group, rank);
    GroupSpread spread = costs.spread(ranks);
    if (costs.has_contention()) {
      spread.at_once = at_once(grid, group, ranks, costs.cluster().devices_per_node);
    }
    topology.instances.push_back({group, std::move(ranks), spread});
    for (std::int64_t member : topology.instances.back().members) {
      by_rank[std::size_t(member)] = index;
    }
  }
  return by_rank[std::size_t(rank)];
}

/// Instances of groups by rank.
class InstancesByRank {
 public:
  InstancesByRank(std::span<const Expansion> expansions, std::size_t ranks) {
    for (const Expansion& expansion : expansions) {
      auto& lists = lists_.emplace_back();
      for (const ClassChannel& channel : expansion.channels) {
        lists.push_back(channel.group ? &known_[*channel.group] : nullptr);
        if (channel.group) lists.back()->resize(ranks, kUnset);
      }
    }
  }
  /// Returns the instances of a channel's group, by rank.
  std::vector<std::uint32_t>& of(std::size_t expansion, std::size_t channel) {
    return *lists_[expansion][channel];
  }

 private:
  std::map<Group, std::vector<std::uint32_t>> known_;
  std::vector<std::vector<std::vector<std::uint32_t>*>> lists_;  ///< [expansion][channel]
};

}  // namespace

RankTopology resolve_channels(std::span<const Expansion> expansions, const CostModel& costs) {
  RankTopology topology;
  const Expansion& first = *std::find_if(expansions.begin(), expansions.end(),
                                         [](const Expansion& e) { return e.program != nullptr; });
  const Grid& grid = first.program->grid;
  const std::size_t count = expansions.size() / costs.device_kinds();
  const std::span programs(first.program, count);  // as they were given
  const std::int64_t ranks = grid.world_size();
  INVARIANT(ranks_per_class(programs) * std::int64_t(programs.size()) == ranks,
            "one Program per class of ranks");
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    topology.expansion.push_back(costs.device_kind(rank) * count +
                                 class_of(programs, grid.coordinates(rank)));
  }
  ChannelCosts channel_costs(expansions, costs, topology);
  InstancesByRank instances(expansions, std::size_t(ranks));
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::size_t own = topology.expansion[std::size_t(rank)];
    std::vector<RankChannel>& channels = topology.channels.emplace_back();
    channels.reserve(expansions[own].channels.size());
    for (std::uint32_t l = 0; l < expansions[own].channels.size(); ++l) {
      const ClassChannel& channel = expansions[own].channels[l];
      RankChannel resolved;
      if (channel.group) {
        resolved.grouped = true;
        resolved.instance =
            instance_of(grid, *channel.group, rank, costs, instances.of(own, l), topology);
        resolved.cost = channel_costs.of(own, l, topology.instances[resolved.instance].spread);
      } else {
        resolved.peer = pipeline_peer(grid, rank, channel.stage_offset);
        const std::array<std::int64_t, 2> pair = {std::min(rank, resolved.peer),
                                                  std::max(rank, resolved.peer)};
        GroupSpread spread = costs.spread(pair);
        if (costs.has_contention()) {
          spread.at_once = transfers_at_once(grid, pair, costs.cluster().devices_per_node);
        }
        resolved.cost = channel_costs.of(own, l, spread);
      }
      channels.push_back(resolved);
    }
  }
  return topology;
}

}  // namespace plimsoll
