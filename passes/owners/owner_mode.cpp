// Owners are chosen for the tensors of a stage.
#include "passes/owners/owner_mode.h"

#include <algorithm>
#include <utility>

#include "passes/owners/ownership.h"

namespace plimsoll {

namespace {

std::vector<std::int64_t> owners_of(const OwnerMode& mode, std::span<const std::int64_t> sizes,
                                    std::span<const std::int64_t> held) {
  switch (mode.rule) {
    case ShardingOwner::greedy:
      return greedy_owners(sizes, mode.ranks, held);
    case ShardingOwner::sorted_greedy:
      return sorted_greedy_owners(sizes, mode.ranks, held);
    default:
      return prefix_owners(sizes, mode.ranks);
  }
}

/// `fixed` has its owner already.
void choose_owners(const OwnerMode& mode, const Graph& graph, std::vector<Placement>& all,
                   std::optional<std::pair<TensorId, std::int64_t>> fixed) {
  std::vector<std::int64_t> sizes, held(std::size_t(mode.ranks));
  const auto is_fixed = [&](const Placement& p) { return fixed && p.parameter == fixed->first; };
  for (auto p = all.rbegin(); p != all.rend(); ++p) {
    const std::int64_t size = elements(graph.at(p->parameter).shape);
    if (is_fixed(*p)) {
      held[std::size_t(fixed->second)] += size;
    } else {
      sizes.push_back(size);
    }
  }
  const std::vector<std::int64_t> owners = owners_of(mode, sizes, held);
  auto next = owners.begin();
  for (auto p = all.rbegin(); p != all.rend(); ++p) {
    p->owner = is_fixed(*p) ? fixed->second : *next++;
  }
}

}  // namespace

std::optional<OwnerMode> owner_mode(const Strategy& strategy) {
  if (!classes_by_owner(strategy)) return std::nullopt;
  OwnerMode mode{strategy.owners.sharding_owner, strategy.sharding_degree, {}, {}, false};
  mode.coalesces = strategy.owners.collective_fusion == CollectiveFusion::coalesced;
  if (strategy.owners.collective_fusion != CollectiveFusion::none) {
    mode.reduced = strategy.gradients.bucket_bytes;
    mode.gathered = strategy.gathers.bucket_bytes;
  }
  return mode;
}

void assign_owners(const OwnerMode& mode, const Graph& graph, std::optional<TensorId> tied,
                   std::optional<std::vector<Placement>> first, std::vector<Placement>& all) {
  std::optional<std::pair<TensorId, std::int64_t>> fixed;
  if (first) {
    choose_owners(mode, graph, *first, {});
    const auto found = std::ranges::find(*first, *tied, &Placement::parameter);
    fixed.emplace(*tied, *found->owner);
  }
  choose_owners(mode, graph, all, fixed);
  std::stable_sort(all.begin(), all.end(),
                   [](const Placement& a, const Placement& b) { return a.owner > b.owner; });
}

bool scatters_bundles(const Strategy& strategy) {
  const auto mode = owner_mode(strategy);
  return mode && (mode->rule != ShardingOwner::prefix || strategy.sharding_stage > 1);
}

}  // namespace plimsoll
