// Engine: cases with round numbers that a reader can compute by hand.
#include <gtest/gtest.h>

#include "tests/simulator/run_engine.h"

namespace plimsoll {
namespace {

using Rank = std::vector<TimedOp>;

TimedOp local(std::int64_t dispatch, std::int64_t duration, std::uint32_t stream = 0,
              std::vector<std::uint32_t> waits = {}) {
  return {stream, Picoseconds(dispatch), Picoseconds(duration), std::nullopt, std::move(waits)};
}

TimedOp meet(std::uint64_t id, std::int64_t dispatch, std::int64_t duration,
             std::uint32_t stream = 0, std::vector<std::uint32_t> waits = {}) {
  return {stream, Picoseconds(dispatch), Picoseconds(duration), id, std::move(waits)};
}

void expect_times(const OpTimes& times, std::int64_t posted, std::int64_t begin, std::int64_t end) {
  EXPECT_EQ(times.posted.count(), posted);
  EXPECT_EQ(times.begin.count(), begin);
  EXPECT_EQ(times.end.count(), end);
}

TEST(EngineStreams, ShortItemsAreBoundByTheHost) {
  // Issuing takes 10, running 3: the stream idles 7 between ops.
  const std::vector<Rank> ranks = {{local(10, 3), local(10, 3), local(10, 3)}};
  const EngineResult result = run_engine(ranks, Execution::streams);
  expect_times(result.times[0][0], 10, 10, 13);
  expect_times(result.times[0][1], 20, 20, 23);
  expect_times(result.times[0][2], 30, 30, 33);
  EXPECT_EQ(result.host_end[0].count(), 30);
  EXPECT_EQ(result.rank_end[0].count(), 33);
}

TEST(EngineStreams, LongItemsAreBoundByTheStreamWhileTheHostRunsAhead) {
  const std::vector<Rank> ranks = {{local(1, 100), local(1, 100), local(1, 100)}};
  const EngineResult result = run_engine(ranks, Execution::streams);
  expect_times(result.times[0][2], 201, 201, 301);
  EXPECT_EQ(result.host_end[0].count(), 3);
  EXPECT_EQ(result.rank_end[0].count(), 301);
}

TEST(EngineStreams, AWaitTiesTwoStreams) {
  // Stream 1 starts its op when op 0 of stream 0 ended (at 51), not when it was issued (at 2);
  // op 2 of stream 0 runs beside it.
  const std::vector<Rank> ranks = {{local(1, 50), local(1, 20, 1, {0}), local(1, 30)}};
  const EngineResult result = run_engine(ranks, Execution::streams);
  expect_times(result.times[0][1], 51, 51, 71);
  expect_times(result.times[0][2], 51, 51, 81);
}

TEST(EngineStreams, ARendezvousBeginsWithTheLastArrivalAndTheLargestDurationCounts) {
  const std::vector<Rank> ranks = {{local(1, 10), meet(7, 1, 5, 1, {0})},
                                   {local(1, 40), meet(7, 1, 8, 1, {0})}};
  const EngineResult result = run_engine(ranks, Execution::streams);
  expect_times(result.times[0][1], 11, 41, 49);
  expect_times(result.times[1][1], 41, 41, 49);
}

TEST(EngineStreams, CommunicationOnItsOwnStreamHidesBehindCompute) {
  // Each rank reduces its first result (8) while it computes its second (20).
  const Rank rank = {local(1, 10), meet(1, 1, 8, 1, {0}), local(1, 20), local(1, 1, 0, {1})};
  const EngineResult result = run_engine(std::vector<Rank>{rank, rank}, Execution::streams);
  expect_times(result.times[0][1], 11, 11, 19);
  expect_times(result.times[0][2], 11, 11, 31);
  expect_times(result.times[0][3], 31, 31, 32);
}

TEST(EngineHost, DispatchAndWorkAddUp) {
  // The host works itself, whatever the stream: 10 + 3 + 10 + 3.
  const std::vector<Rank> ranks = {{local(10, 3), local(10, 3, 1)}};
  const EngineResult result = run_engine(ranks, Execution::threads);
  expect_times(result.times[0][0], 10, 10, 13);
  expect_times(result.times[0][1], 23, 23, 26);
  EXPECT_EQ(result.host_end[0].count(), 26);
}

TEST(EngineHost, TheLastArriverDoesTheWorkAndTheFirstGoesOn) {
  // Rank 0 posts at 1 and computes from 2 to 12. Rank 1 posts at 21; the transfer of 30 runs on
  // rank 1, which computes from 52 on. Rank 0 needs the result and waits for it until 51.
  const std::vector<Rank> ranks = {
      {meet(1, 1, 30, 1), local(1, 10), local(1, 10, 0, {0})},
      {local(1, 19), meet(1, 1, 30, 1), local(1, 10)},
  };
  const EngineResult result = run_engine(ranks, Execution::threads);
  expect_times(result.times[0][0], 1, 21, 51);
  expect_times(result.times[0][1], 2, 2, 12);
  expect_times(result.times[0][2], 52, 52, 62);
  expect_times(result.times[1][1], 21, 21, 51);
  expect_times(result.times[1][2], 52, 52, 62);
}

TEST(EngineHost, ThoseWhoArriveAtTheSameInstantAreAllCharged) {
  const Rank rank = {local(1, 9), meet(1, 10, 30, 1), local(1, 5)};
  const Rank early = {meet(1, 10, 30, 1), local(1, 5)};
  const EngineResult result = run_engine(std::vector<Rank>{rank, early, rank}, Execution::threads);
  expect_times(result.times[0][1], 20, 20, 50);
  expect_times(result.times[2][1], 20, 20, 50);
  expect_times(result.times[0][2], 51, 51, 56);
  expect_times(result.times[2][2], 51, 51, 56);
  expect_times(result.times[1][0], 10, 20, 50);
  expect_times(result.times[1][1], 11, 11, 16);
}

TEST(EngineHost, ARendezvousIsHeldByTheOneBeforeItOnItsStream) {
  // Rank 0 posts A (with rank 1) at 1 and B (with rank 2) at 2 on one stream. Rank 1 comes to A at
  // 11 and runs it until 21. Only then does rank 0 arrive at B, where rank 2 has been since 3:
  // rank 1 runs B as well, until 31, before it goes on.
  enum : std::uint64_t { a, b };
  const std::vector<Rank> ranks = {
      {meet(a, 1, 10, 1), meet(b, 1, 10, 1), local(1, 5)},
      {local(1, 9), meet(a, 1, 10, 1), local(1, 5)},
      {local(1, 1), meet(b, 1, 10, 1), local(1, 5, 0, {1})},
  };
  const EngineResult result = run_engine(ranks, Execution::threads);
  expect_times(result.times[0][0], 1, 11, 21);
  expect_times(result.times[0][1], 2, 21, 31);
  expect_times(result.times[0][2], 3, 3, 8);
  expect_times(result.times[1][2], 32, 32, 37);
  expect_times(result.times[2][1], 3, 21, 31);
  expect_times(result.times[2][2], 32, 32, 37);
}

TEST(EngineHost, OtherStreamsAreNotHeld) {
  const std::vector<Rank> ranks = {
      {meet(1, 1, 10, 1), meet(2, 1, 10, 2)},
      {local(1, 99), meet(1, 1, 10, 1)},
      {local(1, 1), meet(2, 1, 10, 2)},
  };
  const EngineResult result = run_engine(ranks, Execution::threads);
  expect_times(result.times[0][1], 2, 3, 13);
}

TEST(EngineHost, ARankEndsWhenWhatItPostedEnded) {
  const std::vector<Rank> ranks = {{meet(1, 1, 5)}, {local(1, 99), meet(1, 1, 5)}};
  const EngineResult result = run_engine(ranks, Execution::threads);
  EXPECT_EQ(result.host_end[0].count(), 1);
  EXPECT_EQ(result.rank_end[0].count(), 106);
  EXPECT_EQ(result.rank_end[1].count(), 106);
}

TEST(EngineHost, ABlockedHostIsWokenByTheLastOfItsWaits) {
  // Rank 0 waits for transfers that complete at 32 (from rank 1) and 12 (from rank 2).
  const std::vector<Rank> ranks = {
      {meet(1, 1, 2, 1), meet(2, 1, 2, 2), local(1, 10, 0, {0, 1})},
      {local(1, 28), meet(1, 1, 2)},
      {local(1, 8), meet(2, 1, 2)},
  };
  const EngineResult result = run_engine(ranks, Execution::threads);
  expect_times(result.times[0][0], 1, 30, 32);
  expect_times(result.times[0][1], 2, 10, 12);
  expect_times(result.times[0][2], 33, 33, 43);
}

TEST(EngineHost, WhoSleepsWakesUpLate) {
  // Rank 1 comes to the meeting at 100; rank 0 waits for it from 1 to 105, or from 91 on.
  for (const std::int64_t work : {0, 90}) {
    const std::vector<Rank> ranks = {
        {local(1, work), meet(1, 1, 5), local(1, 10, 0, {1})},
        {local(1, 98), meet(1, 1, 5), local(1, 10, 0, {1})},
    };
    const WakeUpCost wake_up{Picoseconds(7), Picoseconds(50)};
    const EngineResult result = run_engine(ranks, Execution::threads, {}, wake_up);
    const std::int64_t late = work == 0 ? 7 : 0;  // too short a wait to fall asleep
    expect_times(result.times[0][2], 106 + late, 106 + late, 116 + late);
    expect_times(result.times[1][2], 106, 106, 116);  // it did the work and did not wait
  }
}

// Two stages, three micro-batches, forward 1000, backward 2000, transfers 1: a third of the step is
// bubble on each stage.
TEST(EngineStreams, PipelineBubbleOfOneForwardOneBackward) {
  enum : std::uint32_t { compute, next, previous };
  Rank first, second;
  // First stage: F0 F1 B0 F2 B1 B2; ids: 2i activations, 2i + 1 gradients of micro-batch i.
  const auto forward = [&](std::uint64_t i) {
    first.push_back(local(1, 1000));
    first.push_back(meet(2 * i, 1, 1, next, {std::uint32_t(first.size() - 1)}));
  };
  const auto backward = [&](std::uint64_t i) {
    first.push_back(meet(2 * i + 1, 1, 1, previous));
    first.push_back(local(1, 2000, compute, {std::uint32_t(first.size() - 1)}));
  };
  forward(0), forward(1), backward(0), forward(2), backward(1), backward(2);
  for (std::uint64_t i = 0; i < 3; ++i) {
    second.push_back(meet(2 * i, 1, 1, next));
    second.push_back(local(1, 1000, compute, {std::uint32_t(second.size() - 1)}));
    second.push_back(local(1, 2000));
    second.push_back(meet(2 * i + 1, 1, 1, previous, {std::uint32_t(second.size() - 1)}));
  }
  const EngineResult result = run_engine(std::vector<Rank>{first, second}, Execution::streams);
  // Critical path: issue, F0, send, F0 B0, send, B0 F2, send, F2 B2, send, B2.
  EXPECT_EQ(result.rank_end[0].count(), 1 + 1000 + 1 + 3000 + 1 + 3000 + 1 + 3000 + 1 + 2000);
  EXPECT_EQ(result.rank_end[1].count(), result.rank_end[0].count() - 2000);
}

/// The host waits for these ops, and 5 longer, before it turns to `op`.
TimedOp after(std::vector<std::uint32_t> awaited, TimedOp op) {
  op.host_waits = std::move(awaited);
  op.host_wait = Picoseconds(5);
  return op;
}

TEST(EngineStreams, AHostThatWaitsIssuesLater) {
  // The first ends at 101; the host turns to the third at 106, whose stream has been idle.
  const std::vector<Rank> ranks = {
      {local(1, 100), local(1, 20, 1), after({0}, local(1, 20, 2)), local(1, 20, 1)}};
  const EngineResult result = run_engine(ranks, Execution::streams);
  expect_times(result.times[0][1], 2, 2, 22);
  expect_times(result.times[0][2], 107, 107, 127);
  expect_times(result.times[0][3], 108, 108, 128);
  EXPECT_EQ(result.host_end[0].count(), 108);
}

// Two stages, two micro-batches, forward 1000, backward 2000, transfers 1; what is sent and
// received between two calls is one exchange, after which the host waits for its device.
TEST(EngineStreams, OneForwardOneBackwardWhoseExchangesHoldTheHost) {
  enum : std::uint32_t { compute, next, previous };
  const std::vector<Rank> ranks = {
      {local(1, 1000), meet(0, 1, 1, next, {0}),                                          // F0
       after({0, 1}, local(1, 1000)), meet(1, 1, 1, next, {2}), meet(2, 1, 1, previous),  // F1
       after({2, 3, 4}, local(1, 2000)), meet(3, 1, 1, previous),                         // B0
       after({5, 6}, local(1, 2000))},                                                    // B1
      {meet(0, 1, 1, next), after({0}, local(1, 1000)), local(1, 2000),                   // F0 B0
       meet(2, 1, 1, previous, {2}), meet(1, 1, 1, next), after({2, 3, 4}, local(1, 1000)),
       local(1, 2000),  // F1 B1
       meet(3, 1, 1, previous, {6})}};
  const EngineResult result = run_engine(ranks, Execution::streams);
  expect_times(result.times[0][1], 1001, 1001, 1002);
  expect_times(result.times[0][2], 1008, 1008, 2008);  // 1002 + 5 + 1
  expect_times(result.times[1][1], 1008, 1008, 2008);
  expect_times(result.times[1][2], 2008, 2008, 4008);
  // Its activation arrives at 2009, but the exchange ends with the gradient.
  expect_times(result.times[1][5], 4015, 4015, 5015);
  expect_times(result.times[0][5], 4015, 4015, 6015);
  expect_times(result.times[1][7], 7015, 7015, 7016);
  expect_times(result.times[0][7], 7022, 7022, 9022);
  EXPECT_EQ(result.rank_end[0].count(), 9022);
  EXPECT_EQ(result.rank_end[1].count(), 7016);
}

TEST(Engine, ShiftingAllStartsShiftsAllTimes) {
  const std::vector<Rank> ranks = {
      {meet(1, 1, 30, 1), local(1, 10), local(1, 10, 0, {0})},
      {local(1, 19), meet(1, 1, 30, 1), local(1, 10)},
  };
  for (const Execution execution : {Execution::streams, Execution::threads}) {
    const EngineResult at_zero = run_engine(ranks, execution);
    const EngineResult later =
        run_engine(ranks, execution, std::vector<Picoseconds>{Picoseconds(500), Picoseconds(500)});
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (std::size_t i = 0; i < ranks[rank].size(); ++i) {
        EXPECT_EQ(later.times[rank][i].begin.count(), at_zero.times[rank][i].begin.count() + 500);
        EXPECT_EQ(later.times[rank][i].end.count(), at_zero.times[rank][i].end.count() + 500);
      }
      EXPECT_EQ(later.rank_end[rank].count(), at_zero.rank_end[rank].count() + 500);
    }
  }
}

TEST(Engine, ARankThatStartsLaterIsTheLastArriver) {
  const Rank rank = {meet(1, 1, 10, 1), local(1, 5)};
  const EngineResult result = run_engine(std::vector<Rank>{rank, rank}, Execution::threads,
                                         std::vector<Picoseconds>{Picoseconds(0), Picoseconds(7)});
  expect_times(result.times[0][0], 1, 8, 18);
  expect_times(result.times[0][1], 2, 2, 7);
  expect_times(result.times[1][1], 19, 19, 24);
}

TEST(Engine, ARankWithoutItemsEndsWhereItStarts) {
  const EngineResult result = run_engine(std::vector<Rank>{{}, {local(1, 2)}}, Execution::threads);
  EXPECT_EQ(result.rank_end[0].count(), 0);
  EXPECT_EQ(result.rank_end[1].count(), 3);
}

TEST(EngineDeathTest, ADeadlockBreaksAnInvariant) {
  // Each rank waits for its first rendezvous before it posts the other's.
  const std::vector<Rank> ranks = {{meet(1, 1, 1), meet(2, 1, 1, 0, {0})},
                                   {meet(2, 1, 1), meet(1, 1, 1, 0, {0})}};
  EXPECT_DEATH(run_engine(ranks, Execution::streams), "never gets past");
}

}  // namespace
}  // namespace plimsoll
