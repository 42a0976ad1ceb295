// Resolves links on the grid and refines the partition of ranks until it is stable.
#include "simulator/ranks/folding.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
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

/// Equal lists get equal small numbers, in order of first appearance. Lists are short and many.
class SignatureNumbering {
 public:
  std::uint32_t operator()(const std::vector<std::uint32_t>& list) {
    return numbers_.try_emplace(list, std::uint32_t(numbers_.size())).first->second;
  }
  std::size_t size() const { return numbers_.size(); }

 private:
  struct Hash {
    std::size_t operator()(const std::vector<std::uint32_t>& list) const {
      std::uint64_t hash = list.size();
      for (const std::uint32_t number : list)
        hash = (hash ^ number) * 0x9E3779B97F4A7C15 + (hash >> 29);
      return std::size_t(hash);
    }
  };
  std::unordered_map<std::vector<std::uint32_t>, std::uint32_t, Hash> numbers_;  // looked up only
};

/// Costs of the ops of one link of one Expansion by how the ranks lie; computed once per
/// combination.
class LinkCosts {
 public:
  LinkCosts(std::span<const Expansion> expansions, const CostModel& costs, LinkTopology& topology)
      : expansions_(expansions), costs_(costs), topology_(topology) {
    for (const Expansion& expansion : expansions) last_.emplace_back(expansion.links.size());
  }

  std::uint32_t of(std::size_t of, std::uint32_t link, const GroupSpread& spread) {
    Last& last = last_[of][link];  // neighbours mostly lie alike
    if (last.cost == kUnset || last.spread != spread) last = {spread, find(of, link, spread)};
    return last.cost;
  }

 private:
  struct Last {
    GroupSpread spread;
    std::uint32_t cost = kUnset;
  };

  std::uint32_t find(std::size_t of, std::uint32_t link, const GroupSpread& spread) {
    const auto [at, added] = known_.try_emplace({of, link, spread}, 0);
    if (!added) return at->second;
    const Expansion& expansion = expansions_[of];
    const bool processes = costs_.execution() == Execution::processes;
    const bool streams = costs_.execution() == Execution::streams;
    std::vector<LinkUse> uses;
    std::vector<Estimate> estimates;
    std::vector<OverlapCurves::Slowdowns> slowdowns;
    std::vector<Beside> besides;
    std::vector<double> times;
    for (const LinkOp& link_op : expansion.link_ops) {
      if (link_op.link != link) continue;
      const Routine& routine = expansion.program->at(link_op.routine);
      const Estimate whole = costs_.communication(routine.ops[link_op.op], routine.tensors, spread);
      estimates.push_back(
          beside_products(routine, link_op.op, whole, spread.ranks, costs_, kind_of(of)));
      times.push_back(estimates.back().time.value());
      times.push_back(double(estimates.back().provenance));
      if (streams) {
        uses.push_back(costs_.link_use(routine.ops[link_op.op], routine.tensors, spread));
        times.push_back(double(uses.back().links));
        times.push_back(double(uses.back().latency.count()));
        slowdowns.push_back(
            costs_.slowdowns(routine.ops[link_op.op], routine.tensors, spread, kind_of(of)));
        times.push_back(slowdowns.back().compute);
        times.push_back(slowdowns.back().communication);
      }
      if (!processes) continue;
      besides.push_back(costs_.beside(routine.ops[link_op.op], routine.tensors, spread));
      add_numbers(besides.back(), times);
    }
    at->second = numbers_(times);
    if (at->second == topology_.costs.size()) {
      topology_.costs.push_back(std::move(estimates));
      if (streams) topology_.link_uses.push_back(std::move(uses));
      if (streams) topology_.slowdowns.push_back(std::move(slowdowns));
      if (processes) topology_.besides.push_back(std::move(besides));
    }
    return at->second;
  }

  /// The kinds of the devices that an Expansion is on.
  std::size_t kind_of(std::size_t expansion) const {
    return expansion / (expansions_.size() / costs_.device_kinds());
  }

  static void add_numbers(const Beside& beside, std::vector<double>& to) {
    for (const auto* speeds : {&beside.communication, &beside.compute}) {
      to.insert(to.end(), speeds->begin(), speeds->end());
    }
    to.push_back(double(beside.latency.count()));
    to.push_back(beside.sends + 2 * beside.receives);
  }

  std::span<const Expansion> expansions_;
  const CostModel& costs_;
  LinkTopology& topology_;
  std::map<std::tuple<std::size_t, std::uint32_t, GroupSpread>, std::uint32_t> known_;
  std::vector<std::vector<Last>> last_;  ///< [expansion][link]: what was asked for before
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
                          LinkTopology& topology) {
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
      for (const Link& link : expansion.links) {
        lists.push_back(link.group ? &known_[*link.group] : nullptr);
        if (link.group) lists.back()->resize(ranks, kUnset);
      }
    }
  }
  /// The instances of the group of a link.
  std::vector<std::uint32_t>& of(std::size_t expansion, std::size_t link) {
    return *lists_[expansion][link];
  }

 private:
  std::map<Group, std::vector<std::uint32_t>> known_;
  std::vector<std::vector<std::vector<std::uint32_t>*>> lists_;  ///< [expansion][link]
};

}  // namespace

LinkTopology resolve_links(std::span<const Expansion> expansions, const CostModel& costs) {
  LinkTopology topology;
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
  LinkCosts link_costs(expansions, costs, topology);
  InstancesByRank instances(expansions, std::size_t(ranks));
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::size_t own = topology.expansion[std::size_t(rank)];
    std::vector<RankLink>& links = topology.links.emplace_back();
    links.reserve(expansions[own].links.size());
    for (std::uint32_t l = 0; l < expansions[own].links.size(); ++l) {
      const Link& link = expansions[own].links[l];
      RankLink resolved;
      if (link.group) {
        resolved.grouped = true;
        resolved.instance =
            instance_of(grid, *link.group, rank, costs, instances.of(own, l), topology);
        resolved.cost = link_costs.of(own, l, topology.instances[resolved.instance].spread);
      } else {
        resolved.peer = pipeline_peer(grid, rank, link.stage_offset);
        const std::array<std::int64_t, 2> pair = {std::min(rank, resolved.peer),
                                                  std::max(rank, resolved.peer)};
        GroupSpread spread = costs.spread(pair);
        if (costs.has_contention()) {
          spread.at_once = transfers_at_once(grid, pair, costs.cluster().devices_per_node);
        }
        resolved.cost = link_costs.of(own, l, spread);
      }
      links.push_back(resolved);
    }
  }
  return topology;
}

std::vector<std::uint32_t> classes_in(const GroupInstance& instance,
                                      std::span<const std::uint32_t> classes) {
  std::vector<std::uint32_t> result;
  for (std::int64_t member : instance.members) {
    const std::uint32_t of = classes[std::size_t(member)];
    if (result.empty() || result.back() != of) result.push_back(of);  // neighbours are often alike
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

std::vector<std::uint32_t> behaviour_classes(const LinkTopology& topology) {
  std::vector<std::uint32_t> classes(topology.expansion.begin(), topology.expansion.end());
  std::size_t count = 0;
  std::vector<std::uint32_t> signature;
  while (true) {
    // Which classes meet in each group.
    SignatureNumbering sets, signatures;
    std::vector<std::uint32_t> set_of;
    for (const GroupInstance& instance : topology.instances) {
      set_of.push_back(sets(classes_in(instance, classes)));
    }
    std::vector<std::uint32_t> refined;
    refined.reserve(classes.size());
    for (std::size_t rank = 0; rank < classes.size(); ++rank) {
      signature.assign(1, classes[rank]);
      for (const RankLink& link : topology.links[rank]) {
        signature.push_back(link.cost);
        signature.push_back(link.grouped ? set_of[link.instance] : classes[std::size_t(link.peer)]);
      }
      refined.push_back(signatures(signature));
    }
    classes = std::move(refined);
    if (signatures.size() == count) return classes;  // nothing was split
    count = signatures.size();
  }
}

}  // namespace plimsoll
