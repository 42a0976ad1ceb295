// Resolves links on the grid and refines the partition of ranks until it is stable.
#include "simulator/folding.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/error.h"

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

/// Costs of the ops of one link of one Expansion by how the ranks lie; computed once per
/// combination.
class LinkCosts {
 public:
  LinkCosts(std::span<const Expansion> expansions, const CostModel& costs, Topology& topology)
      : expansions_(expansions), costs_(costs), topology_(topology) {}

  std::uint32_t of(std::size_t of, std::uint32_t link, const GroupSpread& spread) {
    const auto [at, added] = known_.try_emplace({of, link, spread}, 0);
    if (!added) return at->second;
    const Expansion& expansion = expansions_[of];
    std::vector<Estimate> estimates;
    std::vector<double> times;
    for (const LinkOp& link_op : expansion.link_ops) {
      if (link_op.link != link) continue;
      const Routine& routine = expansion.program->at(link_op.routine);
      estimates.push_back(costs_.communication(routine.ops[link_op.op], routine.tensors, spread));
      times.push_back(estimates.back().time.value());
      times.push_back(double(estimates.back().provenance));
    }
    at->second = numbers_(times);
    if (at->second == topology_.costs.size()) topology_.costs.push_back(std::move(estimates));
    return at->second;
  }

 private:
  std::span<const Expansion> expansions_;
  const CostModel& costs_;
  Topology& topology_;
  std::map<std::tuple<std::size_t, std::uint32_t, GroupSpread>, std::uint32_t> known_;
  Numbering<std::vector<double>> numbers_;
};

/// The instance of `group` that `rank` is in, found or made.
std::uint32_t instance_of(const Grid& grid, const Group& group, std::int64_t rank,
                          const CostModel& costs,
                          std::map<Group, std::vector<std::uint32_t>>& known, Topology& topology) {
  std::vector<std::uint32_t>& by_rank = known[group];
  by_rank.resize(topology.expansion.size(), kUnset);
  if (by_rank[std::size_t(rank)] == kUnset) {
    const auto index = std::uint32_t(topology.instances.size());
    std::vector<std::int64_t> ranks = members(grid, group, rank);
    const GroupSpread spread = costs.spread(ranks);
    topology.instances.push_back({group, std::move(ranks), spread});
    for (std::int64_t member : topology.instances.back().members) {
      by_rank[std::size_t(member)] = index;
    }
  }
  return by_rank[std::size_t(rank)];
}

}  // namespace

Topology resolve_links(std::span<const Expansion> expansions, const CostModel& costs) {
  Topology topology;
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
  std::map<Group, std::vector<std::uint32_t>> known;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::size_t own = topology.expansion[std::size_t(rank)];
    std::vector<RankLink>& links = topology.links.emplace_back();
    for (std::uint32_t l = 0; l < expansions[own].links.size(); ++l) {
      const Link& link = expansions[own].links[l];
      RankLink resolved;
      if (link.group) {
        resolved.grouped = true;
        resolved.instance = instance_of(grid, *link.group, rank, costs, known, topology);
        resolved.cost = link_costs.of(own, l, topology.instances[resolved.instance].spread);
      } else {
        resolved.peer = pipeline_peer(grid, rank, link.stage_offset);
        const std::array<std::int64_t, 2> pair = {std::min(rank, resolved.peer),
                                                  std::max(rank, resolved.peer)};
        resolved.cost = link_costs.of(own, l, costs.spread(pair));
      }
      links.push_back(resolved);
    }
  }
  return topology;
}

std::vector<std::uint32_t> classes_in(const GroupInstance& instance,
                                      std::span<const std::uint32_t> classes) {
  std::vector<std::uint32_t> result;
  for (std::int64_t member : instance.members) result.push_back(classes[std::size_t(member)]);
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

std::vector<std::uint32_t> behaviour_classes(const Topology& topology) {
  std::vector<std::uint32_t> classes(topology.expansion.begin(), topology.expansion.end());
  std::size_t count = 0;
  while (true) {
    // Which classes meet in each group.
    Numbering<std::vector<std::uint32_t>> sets;
    std::vector<std::uint32_t> set_of;
    for (const GroupInstance& instance : topology.instances) {
      set_of.push_back(sets(classes_in(instance, classes)));
    }
    Numbering<std::vector<std::uint32_t>> signatures;
    std::vector<std::uint32_t> refined;
    for (std::size_t rank = 0; rank < classes.size(); ++rank) {
      std::vector<std::uint32_t> signature = {classes[rank]};
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
