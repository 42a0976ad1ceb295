// Rank orders: which of them lie alike, which are tried, and that the search takes the best.
#include "passes/strategy/rank_orders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/search/search.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

constexpr auto kUsual = RankOrder::sharding_dp_pp, kPipelineInside = RankOrder::pp_sharding_dp;

/// Two nodes of two slow cores, joined by a link of so many times the bandwidth within a node.
Cluster two_nodes(double across) {
  Cluster cluster = small_cluster();
  cluster.nodes = 2;
  cluster.devices_per_node = 2;
  cluster.levels = {{"memory", 2, BytesPerSecond(5e9), Seconds(2e-6)},
                    {"network", 0, BytesPerSecond(5e9 * across), Seconds(5e-6)}};
  return cluster;
}

TEST(RankOrders, LieAlikeWhereNodesHoldTheSameGroups) {
  const auto alike = [](const char* degrees, std::vector<std::int64_t> sizes, bool kinds = true) {
    return group_alike(parse_strategy(degrees), kUsual, kPipelineInside, {std::move(sizes), kinds});
  };
  EXPECT_TRUE(alike("mp=8,dp=4,pp=4", {8}));
  EXPECT_FALSE(alike("mp=8,dp=4,pp=4", {8}, false));
  EXPECT_FALSE(alike("mp=4,dp=4,pp=4", {8}));
  EXPECT_TRUE(alike("mp=2,cp=4,dp=4,pp=4", {8}));
  EXPECT_TRUE(alike("mp=4,dp=16", {8}));
  EXPECT_TRUE(alike("mp=4,dp=2,pp=2", {16}));      // one node
  EXPECT_FALSE(alike("mp=8,dp=4,pp=4", {8, 32}));  // a switch of four nodes
  EXPECT_FALSE(alike("mp=3,dp=4,pp=4", {8}));      // nodes end within a group of mp
}

/// Every group of each rank by its coordinates, wherever it is.
std::vector<GroupSpread> spreads(const Grid& grid, const CostModel& costs) {
  std::vector<GroupSpread> found;
  for (std::int64_t i = 0; i < grid.world_size(); ++i) {
    Grid numbered = grid;  // in one order of coordinates
    numbered.order = Grid().order;
    const std::int64_t rank = grid.rank(numbered.coordinates(i));
    for (unsigned axes = 1; axes < 1u << kRankAxes; ++axes) {
      Group group;
      for (std::size_t axis = 0; axis < kRankAxes; ++axis) {
        if ((axes >> axis & 1) != 0) group.axes.add(Axis(axis));
      }
      found.push_back(costs.spread(members(grid, group, rank)));
    }
  }
  return found;
}

TEST(RankOrders, ThatLieAlikeHaveTheSameSpreads) {
  std::mt19937_64 random(3);
  int alike = 0, different = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto degree = [&] { return std::int64_t(1 + random() % 3); };
    Strategy strategy;
    strategy.mp = degree(), strategy.dp = degree(), strategy.pp = degree();
    strategy.sharding_degree = degree();
    Cluster cluster = two_nodes(1);
    cluster.nodes = std::nullopt;
    cluster.devices_per_node = std::int64_t(1 + random() % 6);
    cluster.levels[0].devices = cluster.devices_per_node;
    cluster.levels.insert(cluster.levels.begin() + 1, cluster.levels[0]);
    cluster.levels[1].devices *= std::int64_t(1 + random() % 4);
    const CostModel costs = small_costs(cluster);
    const auto a = RankOrder(random() % std::size(kRankOrders));
    const auto b = RankOrder(random() % std::size(kRankOrders));
    if (same_ranks(strategy, a, b)) continue;
    const bool same = group_alike(strategy, a, b, units_of(cluster));
    ++(same ? alike : different);
    if (!same) continue;
    strategy.rank_order = a;
    const std::vector<GroupSpread> of_a = spreads(grid_of(strategy), costs);
    strategy.rank_order = b;
    EXPECT_EQ(of_a, spreads(grid_of(strategy), costs)) << strategy_summary(strategy);
  }
  EXPECT_GT(alike, 20);
  EXPECT_GT(different, 20);
}

TEST(RankOrders, AreThoseOfTheFrameworkThatLieDifferently) {
  const DeviceUnits nodes{{8}};
  const auto tried = [&](const char* framework, const char* degrees) {
    return rank_orders(framework_by_name(framework), parse_strategy(degrees), nodes);
  };
  const auto megatron = tried("megatron-lm", "mp=4,dp=4,pp=4");
  EXPECT_EQ(megatron.tried, (std::vector{kUsual, kPipelineInside}));
  EXPECT_EQ(megatron.alike, 0);
  const auto whole_nodes = tried("megatron-lm", "mp=8,dp=4,pp=4");
  EXPECT_EQ(whole_nodes.tried, std::vector{kUsual});
  EXPECT_EQ(whole_nodes.alike, 1);
  EXPECT_EQ(tried("megatron-lm", "mp=4,pp=16").tried, std::vector{kUsual});
  EXPECT_EQ(tried("megatron-lm", "mp=4,pp=16").alike, 0);  // it numbers the ranks alike
  EXPECT_EQ(tried("megatron-lm-2022", "mp=4,dp=4,pp=4").tried, std::vector{kUsual});
  EXPECT_EQ(tried("paddle-2.1", "mp=4,dp=4,pp=4").tried, std::vector{RankOrder::sharding_pp_dp});
  EXPECT_EQ(tried("paddle-2.1", "mp=4,pp=4,sharding_degree=4").tried, std::vector{kUsual});
  const auto any = tried("bundled", "mp=4,dp=2,sharding_degree=2,pp=2");
  EXPECT_EQ(any.tried, (std::vector{kUsual, kPipelineInside, RankOrder::dp_sharding_pp}));
  EXPECT_EQ(any.alike, 3);
}

TEST(RankOrders, OfTheSpaceDoubleItsStrategiesOrAreCountedAsAlike) {
  const Framework framework = framework_by_name("megatron-lm");
  const Fixed fixed = {{"pp", "2"}, {"dp", "2"}};
  const Space one = enumerate(nano_job(), framework, 4, fixed, {{4}});
  const Space two = enumerate(nano_job(), framework, 4, fixed, {{2}});
  EXPECT_EQ(two.legal.size(), 2 * one.legal.size());
  const auto alike = [](const Space& space) {
    return std::ranges::count(space.rejected,
                              "rank_order lays groups over nodes as another that is tried",
                              &Pruned::reason);
  };
  EXPECT_EQ(alike(one), 1);
  EXPECT_EQ(one.rejected.back().count, 1);
  EXPECT_EQ(alike(two), 0);
  std::size_t i = 0;
  for (const Strategy& strategy : two.legal) {
    EXPECT_EQ(strategy.rank_order, i++ < one.legal.size() ? kUsual : kPipelineInside);
  }
  Fixed held = fixed;
  held.emplace_back("rank_order", "mp-cp-pp-sharding-dp");
  const Space of_one = enumerate(nano_job(), framework, 4, held, {{4}});
  EXPECT_EQ(of_one.legal.size(), one.legal.size());
  EXPECT_EQ(of_one.legal[0].rank_order, kPipelineInside);
}

Plan plan_for(const Cluster& cluster, Fixed fixed) {
  SearchRequest request{nano_target(4, cluster), std::move(fixed)};
  request.inputs.cluster_digest = std::string(64, '0');
  return search(request);
}

/// Gradients once per step outweigh the borders of few micro-batches; those of many do not.
TEST(RankOrders, TheSearchPutsOnANodeWhatTalksMost) {
  const Cluster cluster = two_nodes(0.01);
  const auto best = [&](const char* micro_batch) {
    const Fixed fixed = {{"pp", "2"}, {"dp", "2"}, {"micro_batch", micro_batch}};
    const Plan plan = plan_for(cluster, fixed);
    const auto with = [&](const char* order) {
      Fixed held = fixed;
      held.emplace_back("rank_order", order);
      return plan_for(cluster, held).prediction.step_time;
    };
    const Seconds usual = with("mp-cp-sharding-dp-pp"), inside = with("mp-cp-pp-sharding-dp");
    EXPECT_NE(usual, inside);
    EXPECT_EQ(plan.prediction.step_time, std::min(usual, inside));
    return plan.strategy.rank_order;
  };
  EXPECT_EQ(best("8"), kUsual);
  EXPECT_EQ(plan_for(two_nodes(1), {{"mp", "2"}, {"dp", "2"}}).strategy.rank_order, kUsual);
}

}  // namespace
}  // namespace plimsoll
