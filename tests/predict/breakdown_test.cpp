// Breakdown: steps of a few ops, added up by hand.
#include "predict/breakdown.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

constexpr std::int64_t kMicrosecond = 1'000'000;  // picoseconds

Picoseconds us(std::int64_t count) { return Picoseconds(count * kMicrosecond); }

CriticalOp compute(Phase phase, std::int64_t begin, std::int64_t end) {
  return {us(begin), us(begin), us(end), OpKind::matmul, Stream::compute, phase};
}

CriticalOp communication(OpKind kind, Stream stream, std::int64_t posted, std::int64_t begin,
                         std::int64_t end, std::uint16_t group = 1) {
  return {us(posted), us(begin), us(end), kind, stream, Phase::forward, group};
}

/// Divides a step with one group.
Breakdown break_down(const std::vector<CriticalOp>& critical, Seconds step_time, bool pipelined) {
  const std::vector<std::string> names = {"", "all"};
  return break_down(take_apart(critical, names, step_time, pipelined), step_time);
}

double sum_us(const Breakdown& b) {
  return 1e6 * (b.forward + b.recompute + b.backward + b.optimizer + b.exposed_communication +
                b.bubble + b.dispatch)
                   .value();
}

TEST(Breakdown, PhasesAndGaps) {
  const std::vector<CriticalOp> critical = {
      compute(Phase::forward, 0, 10), compute(Phase::recompute, 11, 14),
      compute(Phase::backward, 14, 34), compute(Phase::optimizer, 34, 39)};
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
  const std::vector<CriticalOp> critical = {
      compute(Phase::backward, 0, 10), communication(OpKind::all_reduce, Stream::data, 1, 3, 8)};
  const Breakdown b = break_down(critical, Seconds(10e-6), false);
  EXPECT_DOUBLE_EQ(b.exposed_communication.value(), 0);
  EXPECT_DOUBLE_EQ(b.backward.value(), 10e-6);
}

TEST(Breakdown, CopiesOfActivationsAreCommunicationWhereNothingHidesThem) {
  const std::vector<CriticalOp> critical = {
      compute(Phase::forward, 0, 10),
      communication(OpKind::copy_to_host, Stream::to_host, 4, 4, 16),
      compute(Phase::backward, 16, 30)};
  const Breakdown b = break_down(critical, Seconds(30e-6), false);
  EXPECT_NEAR(b.exposed_communication.value(), 6e-6, 1e-15);
  EXPECT_NEAR(sum_us(b), 30, 1e-9);
}

TEST(Breakdown, WaitingForACollectiveIsCommunicationAndForAPeerIsBubble) {
  const std::vector<CriticalOp> critical = {
      compute(Phase::forward, 0, 10),
      // Waits 10..16, transfers 16..20.
      communication(OpKind::all_reduce, Stream::data, 10, 16, 20),
      // Waits 20..27, transfers 27..28.
      communication(OpKind::recv, Stream::recv_previous, 20, 27, 28),
      compute(Phase::backward, 28, 50)};
  const Breakdown b = break_down(critical, Seconds(50e-6), false);
  EXPECT_NEAR(b.exposed_communication.value(), 11e-6, 1e-15);
  EXPECT_NEAR(b.bubble.value(), 7e-6, 1e-15);
  EXPECT_NEAR(sum_us(b), 50, 1e-9);
}

TEST(Breakdown, WaitingForAllRanksIsBubbleInAPipeline) {
  const std::vector<CriticalOp> critical = {
      compute(Phase::backward, 0, 10),
      communication(OpKind::all_reduce, Stream::world, 10, 16, 20)};
  const Breakdown alone = break_down(critical, Seconds(20e-6), false);
  EXPECT_NEAR(alone.exposed_communication.value(), 10e-6, 1e-15);
  EXPECT_DOUBLE_EQ(alone.bubble.value(), 0);
  const Breakdown pipelined = break_down(critical, Seconds(20e-6), true);
  EXPECT_NEAR(pipelined.exposed_communication.value(), 4e-6, 1e-15);
  EXPECT_NEAR(pipelined.bubble.value(), 6e-6, 1e-15);
}

TEST(Breakdown, OverlappingCausesCountOnce) {
  const std::vector<CriticalOp> critical = {
      compute(Phase::forward, 0, 10), communication(OpKind::recv, Stream::recv_previous, 5, 20, 22),
      communication(OpKind::all_reduce, Stream::data, 10, 15, 18)};
  // 10..18 belongs to the all-reduce, 18..20 to the peer, 20..22 to the transfer.
  const Breakdown b = break_down(critical, Seconds(22e-6), false);
  EXPECT_NEAR(b.exposed_communication.value(), 10e-6, 1e-15);
  EXPECT_NEAR(b.bubble.value(), 2e-6, 1e-15);
  EXPECT_NEAR(sum_us(b), 22, 1e-9);
}

Picoseconds sum(const StepParts& parts) {
  Picoseconds sum = parts.forward + parts.recompute + parts.backward + parts.optimizer +
                    parts.bubble + parts.dispatch;
  for (const GroupTime& time : parts.communication) sum += time.wait + time.transfer;
  return sum;
}

TEST(StepParts, CommunicationByGroupExposedAndHidden) {
  const std::vector<CriticalOp> critical = {
      compute(Phase::forward, 0, 10),
      // Waits 5..8 and moves 8..10 beside compute, 10..14 exposed.
      communication(OpKind::all_gather, Stream::data, 5, 8, 14, 1),
      // Waits until 16, of which the gather hides 4; moves 16..18.
      communication(OpKind::all_reduce, Stream::mp, 10, 16, 18, 2),
      // Bubble 18..20, moves 20..21, into the next step until 40.
      communication(OpKind::recv, Stream::recv_previous, 18, 20, 21, 3),
      compute(Phase::backward, 21, 29),
      communication(OpKind::all_gather, Stream::data, 29, 30, 40, 1),
  };
  const std::vector<std::string> names = {"", "sharding", "mp", "pp"};
  const StepParts parts = take_apart(critical, names, Seconds(35e-6), true);
  EXPECT_EQ(parts.communication, (std::vector<GroupTime>{{"mp", us(2), us(2), us(0)},
                                                         {"pp", us(0), us(1), us(0)},
                                                         {"sharding", us(1), us(9), us(2)}}));
  EXPECT_EQ(parts.forward, us(10));
  EXPECT_EQ(parts.backward, us(8));
  EXPECT_EQ(parts.bubble, us(2));
  EXPECT_EQ(parts.dispatch, us(0));
  EXPECT_EQ(sum(parts), parts.step);
  EXPECT_EQ(parts.step, us(35));
  // Forward communicates 10..18 and 29..35; what the stage waits and receives, 18..21, is nobody's.
  EXPECT_EQ(parts.timers, (std::array{us(24), us(8), us(0)}));
  EXPECT_EQ(time_of(TimedPart::communication, parts), us(17).seconds());
}

TEST(StepParts, TimersCountTheHostBeforeAnOpAndNoSumOfGradients) {
  const std::vector<CriticalOp> critical = {
      compute(Phase::forward, 0, 10), compute(Phase::recompute, 12, 14),
      compute(Phase::backward, 14, 24),
      // Waits 24..26 and moves 26..30; the update begins 1 us later.
      communication(OpKind::all_reduce, Stream::data, 20, 26, 30),
      compute(Phase::optimizer, 31, 35)};
  const std::vector<std::string> names = {"", "dp"};
  const StepParts parts = take_apart(critical, names, Seconds(35e-6), false);
  EXPECT_EQ(parts.timers, (std::array{us(10), us(14), us(5)}));
  EXPECT_EQ(time_of(TimedPart::compute, parts), us(26).seconds());
}

TEST(Breakdown, TheStepBeginsWithTheFirstPost) {
  const std::vector<CriticalOp> critical = {compute(Phase::forward, 5, 35)};
  // Its own step begins at 5 us and lasts a period.
  const Breakdown b = break_down(critical, Seconds(40e-6), false);
  EXPECT_NEAR(b.forward.value(), 30e-6, 1e-15);
  EXPECT_NEAR(b.dispatch.value(), 10e-6, 1e-15);
}

TEST(Breakdown, EmptyTimelineIsAllDispatch) {
  const Breakdown b = break_down(std::vector<CriticalOp>(), Seconds(1e-6), false);
  EXPECT_DOUBLE_EQ(b.dispatch.value(), 1e-6);
}

}  // namespace
}  // namespace plimsoll
