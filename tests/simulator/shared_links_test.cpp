// Communications that share links: times a reader can compute by hand.
#include "simulator/shared_links.h"

#include <gtest/gtest.h>

#include <map>

#include "simulator/engine.h"

namespace plimsoll {
namespace {

using Links = std::vector<std::uint32_t>;

struct Communication {
  std::int64_t begin, work;
  Links links;
};

/// When each ends.
std::vector<std::int64_t> ends(const std::vector<Communication>& all) {
  SharedLinks shared(all.size(), 8);
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    shared.begin(i, Picoseconds(all[i].begin), Picoseconds(all[i].work), all[i].links);
  }
  std::vector<std::int64_t> result(all.size());
  while (const auto end = shared.next()) result[end->communication] = end->time.count();
  return result;
}

TEST(SharedLinks, WhoIsAloneTakesItsWork) {
  EXPECT_EQ(ends({{10, 100, {0}}, {10, 70, {1, 2}}, {110, 5, {0}}}),
            (std::vector<std::int64_t>{110, 80, 115}));
}

TEST(SharedLinks, TwoShareALinkWhileBothAreUnderWay) {
  // Alone until 50, then at half speed: the first has 50 left and ends at 150. The second has done
  // 50 by then and goes on alone.
  EXPECT_EQ(ends({{0, 100, {3}}, {50, 100, {3}}}), (std::vector<std::int64_t>{150, 200}));
}

TEST(SharedLinks, WhatOneCannotUseTheOthersGet) {
  // Link 1 is shared by four, a quarter each. On link 0 that leaves three quarters for the first.
  EXPECT_EQ(ends({{0, 300, {0}}, {0, 100, {0, 1}}, {0, 100, {1}}, {0, 100, {1}}, {0, 100, {1}}}),
            (std::vector<std::int64_t>{400, 400, 400, 400, 400}));
}

TEST(SharedLinks, OrderOfNamesDoesNotMatter) {
  // Thirds are not whole: all three still end together, rounded up.
  const std::vector<Communication> all = {{0, 100, {0}}, {0, 100, {0, 1}}, {0, 100, {0}}};
  EXPECT_EQ(ends(all), (std::vector<std::int64_t>{301, 301, 301}));
  EXPECT_EQ(ends({all[1], all[2], all[0]}), (std::vector<std::int64_t>{301, 301, 301}));
}

TEST(SharedLinks, ACommunicationWithoutBytesEndsAtOnce) {
  EXPECT_EQ(ends({{0, 100, {0}}, {20, 0, {0}}}), (std::vector<std::int64_t>{100, 20}));
}

Item communication(std::uint64_t id, std::int64_t duration, std::uint32_t stream, LinkUse use) {
  Item item{stream, Picoseconds(1), Picoseconds(duration), id, {}};
  item.link_use = use;
  return item;
}

TEST(EngineStreams, TransfersOverOneNicShareIt) {
  // Rank 1 sends to both neighbours: 10 of latency and 100 of bytes each, issued at 1 and 2. Bytes
  // flow from 11 and 12: one alone for 1, then two at half speed until 210.
  const LinkUse out{1, Picoseconds(10)}, in{2, Picoseconds(10)};
  const Item after = [] {
    Item item{2, Picoseconds(1), Picoseconds(7), std::nullopt, {0}};
    return item;
  }();
  const std::vector<std::vector<Item>> ranks = {
      {communication(0, 110, 0, in)},
      {communication(0, 110, 0, out), communication(1, 110, 1, out), after},
      {communication(1, 110, 1, in)}};
  const EngineResult result = run_engine(ranks, Execution::streams);
  EXPECT_EQ(result.times[1][0].begin.count(), 1);
  EXPECT_EQ(result.times[1][0].end.count(), 210);
  EXPECT_EQ(result.times[1][1].end.count(), 211);
  EXPECT_EQ(result.times[0][0].end.count(), 210);
  EXPECT_EQ(result.times[1][2].begin.count(), 210);  // what waits for the first
  EXPECT_EQ(result.rank_end[1].count(), 217);
}

TEST(EngineStreams, WhatIsIssuedLaterStillSharesInTime) {
  // The second transfer begins only when the kernel that it waits for has ended, at 50, although
  // was issued at once: 50 + 10 of latency; the first has 100 of bytes from 11 on.
  const LinkUse out{1, Picoseconds(10)};
  Item second = communication(1, 60, 1, out);
  second.waits = {1};
  const std::vector<std::vector<Item>> ranks = {
      {communication(0, 110, 0, out),
       {2, Picoseconds(1), Picoseconds(48), std::nullopt, {}},
       second}};
  const EngineResult result = run_engine(ranks, Execution::streams);
  // From 60: 51 of the first and 50 of the second at half speed.
  EXPECT_EQ(result.times[0][2].begin.count(), 50);
  EXPECT_EQ(result.times[0][2].end.count(), 160);
  EXPECT_EQ(result.times[0][0].end.count(), 161);
}

}  // namespace
}  // namespace plimsoll
