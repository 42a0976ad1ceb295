// Ranks and groups of grids are compared with lists made by hand.
#include "graph/grid.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace plimsoll {
namespace {

Grid grid_2_2_3() {  // mp 2, dp 2, pp 3
  Grid grid;
  grid.degree = {2, 1, 1, 2, 3, 1, 1, 1};
  return grid;
}

TEST(Grid, FirstAxisOfTheOrderChangesFastest) {
  const Grid grid = grid_2_2_3();
  EXPECT_EQ(grid.world_size(), 12);
  EXPECT_EQ(grid.coordinates(7), (Coordinates{1, 0, 0, 1, 1}));  // 7 = 1 + 2*1 + 4*1
  EXPECT_EQ(grid.rank({1, 0, 0, 1, 1}), 7);
}

TEST(Grid, GroupsAreTheRanksThatDifferInTheirAxesOnly) {
  const Grid grid = grid_2_2_3();
  EXPECT_EQ(members(grid, {{Axis::mp}, false}, 7), (std::vector<std::int64_t>{6, 7}));
  EXPECT_EQ(members(grid, {{Axis::pp}, false}, 7), (std::vector<std::int64_t>{3, 7, 11}));
  EXPECT_EQ(members(grid, {{Axis::pp}, true}, 3), (std::vector<std::int64_t>{3, 11}));
  EXPECT_EQ(size(grid, {{Axis::mp, Axis::pp}, false}), 6);
  EXPECT_EQ(size(grid, {{Axis::pp}, true}), 2);
  EXPECT_EQ(index_in(grid, {{Axis::mp}, false}, 7), 1);
}

TEST(Grid, RunsOfMpAreConsecutiveRanksOfIt) {
  Grid grid;
  grid.degree = {6, 1, 1, 2, 1, 1, 1, 1};
  Group pairs{{Axis::mp}};
  pairs.mp_run = 2;
  EXPECT_EQ(members(grid, pairs, 3), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(members(grid, pairs, 10), (std::vector<std::int64_t>{10, 11}));
  EXPECT_EQ(size(grid, pairs), 2);
  EXPECT_EQ(index_in(grid, pairs, 11), 1);
  pairs.axes.add(Axis::dp);
  EXPECT_EQ(members(grid, pairs, 3), (std::vector<std::int64_t>{2, 3, 8, 9}));
  EXPECT_EQ(size(grid, pairs), 4);
}

TEST(Grid, GroupTextRoundTrips) {
  for (const Group& group : {Group{}, Group{{Axis::mp}}, Group{{Axis::sharding, Axis::dp}},
                             Group{{Axis::pp}, 1}, Group{{Axis::pp}, 3, 2},
                             Group{{Axis::mp}, false, 2}, Group{{Axis::mp, Axis::pp}, true, 4}}) {
    EXPECT_EQ(group_from(to_text(group)), group) << to_text(group);
  }
  EXPECT_EQ(group_from("mp,tp"), std::nullopt);
  for (const char* text : {"mp:run", "mp:run0", "mp:run-1", "mp:run2x"}) {
    EXPECT_EQ(group_from(text), std::nullopt) << text;
  }
}

RC_GTEST_PROP(Grid, RanksAndCoordinatesAreInverse, ()) {
  Grid grid;
  for (std::size_t i = 0; i < kRankAxes; ++i)
    grid.degree[i] = *rc::gen::inRange<std::int64_t>(1, 5);
  for (std::size_t i = kRankAxes; i-- > 1;)
    std::swap(grid.order[i], grid.order[*rc::gen::inRange<std::size_t>(0, i + 1)]);
  const std::int64_t rank = *rc::gen::inRange<std::int64_t>(0, grid.world_size());
  RC_ASSERT(grid.rank(grid.coordinates(rank)) == rank);
}

}  // namespace
}  // namespace plimsoll
