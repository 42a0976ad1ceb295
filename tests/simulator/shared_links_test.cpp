// Communications that share links: times a reader can compute by hand.
#include "simulator/engine/shared_links.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "simulator/engine/engine.h"
#include "tests/simulator/fair_speeds.h"
#include "tests/simulator/run_engine.h"

namespace plimsoll {
namespace {

using Links = std::vector<std::uint32_t>;

struct Communication {
  std::int64_t begin, work;
  Links links;
};

/// When each ends.
std::vector<std::int64_t> ends(const std::vector<Communication>& all) {
  SharedLinks shared(8);
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

TEST(SharedLinks, WhatBecomesKnownLateBeginsThen) {
  SharedLinks shared(1);
  const Links link = {0};
  shared.begin(0, Picoseconds(0), Picoseconds(100), link);
  ASSERT_EQ(shared.next()->time, Picoseconds(100));
  shared.begin(1, Picoseconds(60), Picoseconds(30), link);
  shared.begin(2, Picoseconds(100), Picoseconds(30), link);
  EXPECT_EQ(shared.next()->time, Picoseconds(160));
  EXPECT_EQ(shared.next()->time, Picoseconds(160));
  EXPECT_FALSE(shared.next());
}

TEST(SharedLinks, ACommunicationWithoutBytesEndsAtOnce) {
  EXPECT_EQ(ends({{0, 100, {0}}, {20, 0, {0}}}), (std::vector<std::int64_t>{100, 20}));
}

/// As ends(), picosecond by picosecond.
std::vector<std::int64_t> ends_by_the_clock(const std::vector<Communication>& all) {
  std::vector<std::int64_t> result(all.size(), -1), left;
  std::vector<LinkFlow> flows;
  for (const Communication& one : all) {
    left.push_back(one.work * kFullSpeed);
    flows.push_back({one.links});
  }
  for (std::int64_t now = 0; std::count(result.begin(), result.end(), -1) > 0; ++now) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (flows[i].under_way && left[i] <= 0) flows[i].under_way = false, result[i] = now;
      if (all[i].begin != now) continue;
      if (all[i].work > 0) flows[i].under_way = true;
      if (all[i].work == 0) result[i] = now;
    }
    const std::vector<std::int64_t> speeds = fair_speeds(flows, 8);
    for (std::size_t i = 0; i < all.size(); ++i) left[i] -= speeds[i];
  }
  return result;
}

TEST(SharedLinks, SharesAsDefinedWhateverComesAndGoes) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    // Few different times make many events happen at once, and few links make communications meet.
    const std::uint32_t step = 1 + seed % 7, links = 2 + seed % 6, most = 1 + seed % 3;
    std::vector<Communication> all;
    for (std::uint32_t i = 0; i < 40; ++i) {
      Communication& one = all.emplace_back();
      one.begin = random() % 20 * step;
      one.work = random() % 6 * step;
      std::set<std::uint32_t> own;
      for (std::uint32_t l = 0; l <= random() % most; ++l) own.insert(random() % links);
      one.links.assign(own.begin(), own.end());
    }
    ASSERT_EQ(ends(all), ends_by_the_clock(all)) << "seed " << seed;
  }
}

TimedOp communication(std::uint64_t id, std::int64_t duration, std::uint32_t stream, LinkUse use) {
  TimedOp op{stream, Picoseconds(1), Picoseconds(duration), id, {}};
  op.link_use = use;
  return op;
}

TEST(SharedLinkStreams, TransfersOverOneNicShareIt) {
  // Rank 1 sends to both neighbours: 10 of latency and 100 of bytes each, issued at 1 and 2. Bytes
  // flow from 11 and 12: one alone for 1, then two at half speed until 210.
  const LinkUse out{1, Picoseconds(10)}, in{2, Picoseconds(10)};
  const TimedOp after = [] {
    TimedOp op{2, Picoseconds(1), Picoseconds(7), std::nullopt, {0}};
    return op;
  }();
  const std::vector<std::vector<TimedOp>> ranks = {
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

TEST(SharedLinkStreams, WhatIsIssuedLaterStillSharesInTime) {
  // The second transfer begins only when the kernel that it waits for has ended, at 50, although
  // was issued at once: 50 + 10 of latency; the first has 100 of bytes from 11 on.
  const LinkUse out{1, Picoseconds(10)};
  TimedOp second = communication(1, 60, 1, out);
  second.waits = {1};
  const std::vector<std::vector<TimedOp>> ranks = {
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
