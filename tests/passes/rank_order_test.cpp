// Rank orders: what each numbers, its text, and which are one.
#include <gtest/gtest.h>

#include "passes/strategy/strategy.h"

namespace plimsoll {
namespace {

TEST(RankOrder, NamesTheAxesInnermostFirst) {
  Strategy strategy = parse_strategy("mp=2,cp=3,sharding_degree=5,dp=7,pp=11");
  for (std::size_t i = 0; i < std::size(kRankOrders); ++i) {
    SCOPED_TRACE(kRankOrders[i]);
    set_field(strategy, "rank_order", kRankOrders[i]);
    EXPECT_EQ(strategy.rank_order, RankOrder(i));
    EXPECT_EQ(field_text(strategy, "rank_order"), kRankOrders[i]);
    EXPECT_EQ(strategy_from_json_text(strategy_text(strategy), "strategy"), strategy);
    const Grid grid = grid_of(strategy);
    std::string named;
    std::int64_t stride = 1;
    for (const Axis axis : grid.order) {
      named += (named.empty() ? "" : "-") + std::string(to_text(axis));
      Coordinates one = {};  // the rank next to the first along this axis
      one[std::size_t(axis)] = 1;
      EXPECT_EQ(grid.rank(one), stride);
      EXPECT_EQ(grid.coordinates(stride), one);
      stride *= grid[axis];
    }
    EXPECT_EQ(named, kRankOrders[i]);
  }
  EXPECT_EQ(grid_of(Strategy()).order, Grid().order);
}

TEST(RankOrder, AxesOfOneRankDoNotChangeTheOrder) {
  const auto same = [](const char* degrees, const char* order) {
    const Strategy strategy = parse_strategy(std::string(degrees) + ",rank_order=" + order);
    return same_ranks(strategy, strategy.rank_order, RankOrder::sharding_dp_pp);
  };
  EXPECT_TRUE(same("mp=2,pp=4", "mp-cp-pp-sharding-dp"));
  EXPECT_TRUE(same("mp=2,cp=2,sharding_degree=4", "mp-cp-dp-pp-sharding"));
  EXPECT_TRUE(same("pp=2,sharding_degree=4", "mp-cp-sharding-pp-dp"));
  EXPECT_FALSE(same("pp=2,sharding_degree=4", "mp-cp-pp-sharding-dp"));
  EXPECT_FALSE(same("dp=2,sharding_degree=4", "mp-cp-dp-pp-sharding"));
}

}  // namespace
}  // namespace plimsoll
