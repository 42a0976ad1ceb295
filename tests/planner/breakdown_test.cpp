// Breakdown: timelines of a few intervals, added up by hand.
#include "planner/breakdown.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

constexpr std::int64_t kMicrosecond = 1'000'000;  // picoseconds

Picoseconds us(std::int64_t count) { return Picoseconds(count * kMicrosecond); }

Interval compute(std::int64_t rank, Phase phase, std::int64_t begin, std::int64_t end) {
  Interval interval;
  interval.rank = rank;
  interval.kind = OpKind::matmul;
  interval.phase = phase;
  interval.posted = interval.begin = us(begin);
  interval.end = us(end);
  return interval;
}

Interval communication(OpKind kind, Stream stream, std::int64_t posted, std::int64_t begin,
                       std::int64_t end) {
  Interval interval;
  interval.stream = stream;
  interval.kind = kind;
  interval.posted = us(posted);
  interval.begin = us(begin);
  interval.end = us(end);
  return interval;
}

double sum_us(const Breakdown& b) {
  return 1e6 * (b.forward + b.recompute + b.backward + b.optimizer + b.exposed_communication +
                b.bubble + b.dispatch)
                   .value();
}

TEST(Breakdown, PhasesAndGaps) {
  const std::vector<Interval> critical = {
      compute(0, Phase::forward, 0, 10), compute(0, Phase::recompute, 11, 14),
      compute(0, Phase::backward, 14, 34), compute(0, Phase::optimizer, 34, 39)};
  const Breakdown b = break_down(critical, Seconds(40e-6), false);
  EXPECT_DOUBLE_EQ(b.forward.value(), 10e-6);
  EXPECT_DOUBLE_EQ(b.recompute.value(), 3e-6);
  EXPECT_DOUBLE_EQ(b.backward.value(), 20e-6);
  EXPECT_DOUBLE_EQ(b.optimizer.value(), 5e-6);
  EXPECT_DOUBLE_EQ(b.bubble.value(), 0);
  EXPECT_NEAR(b.dispatch.value(), 2e-6, 1e-15);
  EXPECT_NEAR(sum_us(b), 40, 1e-9);
}

TEST(Breakdown, HiddenCommunicationCostsNothing) {
  const std::vector<Interval> critical = {compute(0, Phase::backward, 0, 10),
                                          communication(OpKind::all_reduce, Stream::data, 1, 3, 8)};
  const Breakdown b = break_down(critical, Seconds(10e-6), false);
  EXPECT_DOUBLE_EQ(b.exposed_communication.value(), 0);
  EXPECT_DOUBLE_EQ(b.backward.value(), 10e-6);
}

TEST(Breakdown, WaitingForACollectiveIsCommunicationAndForAPeerIsBubble) {
  const std::vector<Interval> critical = {
      compute(0, Phase::forward, 0, 10),
      // Waits 10..16, transfers 16..20.
      communication(OpKind::all_reduce, Stream::data, 10, 16, 20),
      // Waits 20..27, transfers 27..28.
      communication(OpKind::recv, Stream::recv_previous, 20, 27, 28),
      compute(0, Phase::backward, 28, 50)};
  const Breakdown b = break_down(critical, Seconds(50e-6), false);
  EXPECT_NEAR(b.exposed_communication.value(), 11e-6, 1e-15);
  EXPECT_NEAR(b.bubble.value(), 7e-6, 1e-15);
  EXPECT_NEAR(sum_us(b), 50, 1e-9);
}

TEST(Breakdown, WaitingForAllRanksIsBubbleInAPipeline) {
  const std::vector<Interval> critical = {
      compute(0, Phase::backward, 0, 10),
      communication(OpKind::all_reduce, Stream::world, 10, 16, 20)};
  const Breakdown alone = break_down(critical, Seconds(20e-6), false);
  EXPECT_NEAR(alone.exposed_communication.value(), 10e-6, 1e-15);
  EXPECT_DOUBLE_EQ(alone.bubble.value(), 0);
  const Breakdown pipelined = break_down(critical, Seconds(20e-6), true);
  EXPECT_NEAR(pipelined.exposed_communication.value(), 4e-6, 1e-15);
  EXPECT_NEAR(pipelined.bubble.value(), 6e-6, 1e-15);
}

TEST(Breakdown, OverlappingCausesCountOnce) {
  const std::vector<Interval> critical = {
      compute(0, Phase::forward, 0, 10),
      communication(OpKind::recv, Stream::recv_previous, 5, 20, 22),
      communication(OpKind::all_reduce, Stream::data, 10, 15, 18)};
  // 10..18 belongs to the all-reduce, 18..20 to the peer, 20..22 to the transfer.
  const Breakdown b = break_down(critical, Seconds(22e-6), false);
  EXPECT_NEAR(b.exposed_communication.value(), 10e-6, 1e-15);
  EXPECT_NEAR(b.bubble.value(), 2e-6, 1e-15);
  EXPECT_NEAR(sum_us(b), 22, 1e-9);
}

TEST(Breakdown, TheStepBeginsWithTheFirstPost) {
  const std::vector<Interval> critical = {compute(1, Phase::forward, 5, 35)};
  // Its own step begins at 5 us and lasts a period.
  const Breakdown b = break_down(critical, Seconds(40e-6), false);
  EXPECT_NEAR(b.forward.value(), 30e-6, 1e-15);
  EXPECT_NEAR(b.dispatch.value(), 10e-6, 1e-15);
}

TEST(Breakdown, EmptyTimelineIsAllDispatch) {
  const Breakdown b = break_down({}, Seconds(1e-6), false);
  EXPECT_DOUBLE_EQ(b.dispatch.value(), 1e-6);
}

}  // namespace
}  // namespace plimsoll
