#include "planner/first_plan.h"

#include <algorithm>
#include <tuple>

#include "planner/assess.h"

namespace plimsoll {
namespace {

constexpr std::size_t kTries = 64;

/// Family indices, the leanest of each number of ranks for one copy of the model.
std::vector<std::size_t> leanest_families(const StrategyList& legal, const Cluster& cluster) {
  std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::size_t>> order;
  const std::span<const StrategyFamily> families = legal.families();
  for (std::size_t f = 0; f < families.size(); ++f) {
    const Strategy& s = families[f].base;
    if (s.recompute != Recompute::full && s.recompute != Recompute::none) continue;
    if (s.mp > cluster.devices_per_node || s.cp > 1) continue;
    order.emplace_back(s.mp * s.pp, s.micro_batch * 2 + (s.recompute == Recompute::none),
                       -s.sharding_degree * 4 - s.sharding_stage, f);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::size_t> leanest;
  std::int64_t before = 0;
  for (const auto& [ranks, batch, sharded, f] : order) {
    if (ranks != before) leanest.push_back(f);
    before = ranks;
  }
  return leanest;
}

}  // namespace

std::optional<Candidate> first_plan(const SearchRequest& request, const CostModel& costs,
                                    const StrategyList& legal, const Bounds& bounds, Bytes capacity,
                                    const std::function<bool()>& passed) {
  std::vector<std::size_t> order = leanest_families(legal, costs.cluster());
  order.resize(std::min(order.size(), kTries));
  for (const std::size_t f : order) {
    if (passed()) break;
    const StrategyFamily& family = legal.families()[f];
    const ArrangementGroup& plain = family.arrangements->groups.front();
    const std::size_t all_recomputed = plain.first + plain.count - 1;
    const Strategy strategy = legal.of(family, all_recomputed, 0);
    const Bytes beside =
        memory_outside_program(request.job, strategy, request.framework) + request.reserve;
    if (bounds.memory(strategy).reserved + beside > capacity) continue;
    Candidate found =
        assess(request, costs, strategy, family.first + all_recomputed * family.buckets);
    confirm_memory(request, costs, {&found, 1}, request.threads);
    if (feasible(found)) return found;
  }
  return std::nullopt;
}

}  // namespace plimsoll
