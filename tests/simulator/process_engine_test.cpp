// Hosts run local ops while rendezvous go on, in times that can be worked out by hand.
#include "simulator/engine/process_engine.h"

#include <gtest/gtest.h>

#include <random>

#include "simulator/engine/engine.h"
#include "tests/simulator/run_engine.h"

namespace plimsoll {
namespace {

using Rank = std::vector<TimedOp>;
constexpr std::int64_t kHalfSpeed = kFullSpeed / 2, kThird = kFullSpeed / 3;

TimedOp local(std::int64_t duration, std::vector<std::uint32_t> waits = {},
              LocalWork work = LocalWork::memory) {
  TimedOp op;
  op.dispatch = Picoseconds(1);
  op.duration = Picoseconds(duration);
  op.waits = std::move(waits);
  op.work = work;
  return op;
}
TimedOp meet(std::uint64_t id, std::int64_t duration, std::uint32_t stream,
             std::vector<std::uint32_t> waits = {}, std::uint32_t slowdown = 0) {
  TimedOp op = local(duration, std::move(waits));
  op.stream = stream;
  op.rendezvous = id;
  op.slowdown = slowdown;
  return op;
}

EngineResult run(const std::vector<Rank>& ranks, const std::vector<MutualSlowdown>& slowdowns,
                 const WakeUpCost& wake_up = {}) {
  return run_engine(ranks, Execution::processes, {}, wake_up, slowdowns);
}

void expect_times(const OpTimes& times, std::int64_t posted, std::int64_t begin, std::int64_t end) {
  EXPECT_EQ(times.posted.count(), posted);
  EXPECT_EQ(times.begin.count(), begin);
  EXPECT_EQ(times.end.count(), end);
}

TEST(Processes, ARendezvousGoesOnBesideCompute) {
  // Posted at 11 by both; 30 long; the host works from 11 to 32, then waits until 41.
  const Rank rank = {local(9), meet(7, 30, 1, {0}), local(20), local(5, {1})};
  const EngineResult result = run({rank, rank}, {MutualSlowdown{}});
  expect_times(result.times[0][1], 11, 11, 41);
  expect_times(result.times[0][2], 12, 12, 32);
  expect_times(result.times[1][3], 42, 42, 47);
  EXPECT_EQ(result.rank_end[0].count(), 47);
}

TEST(Processes, ItBeginsWithTheLastArrivalAndOnlyOnceItsStreamIsFree) {
  const std::vector<Rank> ranks = {{meet(1, 10, 1), meet(2, 5, 1), local(1, {1})},
                                   {local(49), meet(1, 10, 1), meet(2, 5, 1), local(1, {2})}};
  const EngineResult result = run(ranks, {MutualSlowdown{}});
  expect_times(result.times[0][0], 1, 51, 61);
  expect_times(result.times[0][1], 2, 61, 66);
  expect_times(result.times[1][2], 52, 61, 66);
}

TEST(Processes, BothSlowEachOtherWhileTheyOverlap) {
  MutualSlowdown slow;
  slow.communication = {kHalfSpeed, kFullSpeed};  // half as fast beside matmuls
  slow.compute = {kFullSpeed / 4, kFullSpeed};
  // From 1 on 40 are to be moved. The matmul of 9 + 1 runs at a quarter: until 41, while 20 move.
  // Then the host waits, and the other 20 take 20.
  const Rank rank = {meet(7, 40, 1), local(9, {}, LocalWork::matmul),
                     local(9, {0}, LocalWork::matmul)};
  EngineResult result = run({rank, rank}, {slow});
  expect_times(result.times[0][1], 2, 2, 41);
  expect_times(result.times[0][0], 1, 1, 61);
  EXPECT_EQ(result.times[0][2].end.count(), 71);  // nothing slows it any more
  // Memory-bound work slows nothing, nor is it slowed.
  const Rank other = {meet(7, 40, 1), local(9), local(9, {0})};
  result = run({other, other}, {slow});
  EXPECT_EQ(result.times[0][1].end.count(), 11);
  EXPECT_EQ(result.times[0][0].end.count(), 41);
}

TEST(Processes, TheSlowestParticipantCounts) {
  MutualSlowdown slow;
  slow.communication = {kHalfSpeed, kHalfSpeed};
  // Rank 0 waits; rank 1 computes from 1 to 31, so that 15 of 40 are moved by then.
  const std::vector<Rank> ranks = {{meet(7, 40, 1), local(1, {0})},
                                   {meet(7, 40, 1), local(29), local(1, {0})}};
  const EngineResult result = run(ranks, {slow});
  expect_times(result.times[0][0], 1, 1, 56);
}

TEST(Processes, WhatPassesOneEndOfALinkSharesIt) {
  MutualSlowdown out, in;
  out.sends = true;
  in.receives = true;
  // Two sends at once: each takes twice its 20. The receive comes the other way.
  const std::vector<Rank> ranks = {
      {meet(1, 20, 1, {}, 0), meet(2, 20, 2, {}, 0), meet(3, 20, 3, {}, 1), local(1, {0, 1, 2})},
      {meet(1, 20, 1, {}, 1), local(1, {0})},
      {meet(2, 20, 1, {}, 1), local(1, {0})},
      {meet(3, 20, 1, {}, 0), local(1, {0})}};
  const EngineResult result = run(ranks, {out, in});
  // The first is alone for one picosecond, so both have 19 and 20 to go, at half speed.
  expect_times(result.times[0][0], 1, 1, 40);
  expect_times(result.times[0][1], 2, 2, 41);
  expect_times(result.times[0][2], 3, 3, 23);
}

TEST(Processes, LatencyIsNotShared) {
  MutualSlowdown out, in;
  out.sends = in.receives = true;
  out.latency = in.latency = Picoseconds(10);
  const std::vector<Rank> ranks = {{meet(1, 20, 1, {}, 0), meet(2, 20, 2, {}, 0), local(1, {0, 1})},
                                   {meet(1, 20, 1, {}, 1), local(1, {0})},
                                   {meet(2, 20, 1, {}, 1), local(1, {0})}};
  const EngineResult result = run(ranks, {out, in});
  // In from 1 and 2; their last 10 each from 11 and 12 on, at half speed from then on: an end that
  // falls between two picoseconds is the later one.
  EXPECT_EQ(result.times[0][0].end.count(), 31);
  EXPECT_EQ(result.times[0][1].end.count(), 32);
}

TEST(Processes, EndsBetweenTwoPicosecondsAreRoundedUp) {
  MutualSlowdown slow;
  slow.communication = {kThird, kThird};
  const Rank rank = {meet(7, 10, 1), local(99), local(1, {0})};
  const EngineResult result = run({rank, rank}, {slow});
  // 10 at 21845/65536 of full speed: 30.0005.
  EXPECT_EQ(result.times[0][0].end.count(), 1 + 31);
}

TEST(Processes, ALongWaitPutsTheHostToSleep) {
  const Rank rank = {meet(7, 100, 1), local(5, {0})};
  const EngineResult result =
      run({rank, rank}, {MutualSlowdown{}}, {Picoseconds(7), Picoseconds(50)});
  expect_times(result.times[0][1], 101 + 7 + 1, 109, 114);
}

/// Ranks that all do the same at random, with a neighbour to meet on each of two streams.
Rank random_rank(std::mt19937& random) {
  Rank ops;
  std::uint64_t id = 0;
  for (int i = 0; i < 30; ++i) {
    std::vector<std::uint32_t> waits;
    if (i > 3 && random() % 3 == 0) waits.push_back(std::uint32_t(i - 1 - int(random() % 3)));
    const auto duration = std::int64_t(random() % 1000);
    if (random() % 3 == 0) {
      const auto stream = std::uint32_t(1 + random() % 2);
      ops.push_back(meet(id++, duration, stream, std::move(waits), std::uint32_t(random() % 3)));
    } else {
      ops.push_back(local(duration, std::move(waits), LocalWork(random() % 2)));
    }
  }
  return ops;
}

TEST(Processes, RanksThatBehaveAlikeAreOneRankAndShiftsShiftResults) {
  std::mt19937 random(3);
  for (int draw = 0; draw < 50; ++draw) {
    std::vector<MutualSlowdown> slowdowns(3);
    for (MutualSlowdown& beside : slowdowns) {
      for (auto* speeds : {&beside.communication, &beside.compute}) {
        for (std::int64_t& speed : *speeds) speed = kFullSpeed / 4 + std::int64_t(random() % 40000);
      }
      beside.latency = Picoseconds(std::int64_t(random() % 300));
      beside.sends = random() % 2 == 0;
      beside.receives = random() % 2 == 0;
    }
    const Rank rank = random_rank(random);
    const EngineResult one = run({rank}, slowdowns), three = run({rank, rank, rank}, slowdowns);
    const std::vector<Picoseconds> later(3, Picoseconds(12345));
    const std::vector<Rank> ranks = {rank, rank, rank};
    const EngineResult shifted = run_engine(ranks, Execution::processes, later, {}, slowdowns);
    for (std::size_t i = 0; i < rank.size(); ++i) {
      ASSERT_EQ(one.times[0][i].end, three.times[2][i].end) << "draw " << draw << " op " << i;
      ASSERT_EQ(one.times[0][i].end + Picoseconds(12345), shifted.times[1][i].end);
    }
    // Nothing is faster than alone.
    const EngineResult alone = run({rank}, {MutualSlowdown{}, MutualSlowdown{}, MutualSlowdown{}});
    ASSERT_LE(alone.rank_end[0], one.rank_end[0]);
  }
}

}  // namespace
}  // namespace plimsoll
