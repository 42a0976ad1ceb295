// Exposed communication is computed from timelines made by hand.
#include "graph/timeline.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

Interval compute(std::int64_t begin, std::int64_t end) {
  Interval interval;
  interval.kind = OpKind::matmul;
  interval.posted = interval.begin = Picoseconds(begin);
  interval.end = Picoseconds(end);
  return interval;
}

Interval communication(std::int64_t posted, std::int64_t begin, std::int64_t end) {
  Interval interval;
  interval.kind = OpKind::all_reduce;
  interval.stream = Stream::data;
  interval.posted = Picoseconds(posted);
  interval.begin = Picoseconds(begin);
  interval.end = Picoseconds(end);
  return interval;
}

TEST(ExposedCommunication, HiddenBehindComputeIsNotExposed) {
  Timeline timeline;
  timeline.intervals = {compute(0, 100), communication(10, 20, 60)};
  const Exposed exposed = exposed_communication(timeline, 0);
  EXPECT_EQ(exposed.wait, Picoseconds(0));
  EXPECT_EQ(exposed.transfer, Picoseconds(0));
}

TEST(ExposedCommunication, WhatComputeLeavesOpenIsSplitIntoWaitAndTransfer) {
  // Compute until 30; posted at 10, the last participant arrives at 50, done at 70: from 30 to 50
  // this rank waits, from 50 to 70 data moves.
  Timeline timeline;
  timeline.intervals = {compute(0, 30), communication(10, 50, 70), compute(70, 90)};
  const Exposed exposed = exposed_communication(timeline, 0);
  EXPECT_EQ(exposed.wait, Picoseconds(20));
  EXPECT_EQ(exposed.transfer, Picoseconds(20));
}

TEST(ExposedCommunication, OverlapOfWaitAndTransferCountsAsTransferOnce) {
  // One waits from 0 to 40 while another transfers from 10 to 30.
  Timeline timeline;
  timeline.intervals = {communication(0, 40, 50), communication(5, 10, 30)};
  const Exposed exposed = exposed_communication(timeline, 0);
  EXPECT_EQ(exposed.wait, Picoseconds(20));
  EXPECT_EQ(exposed.transfer, Picoseconds(30));
}

TEST(ExposedCommunication, OtherRanksDoNotCount) {
  Timeline timeline;
  timeline.intervals = {communication(0, 40, 50)};
  timeline.intervals[0].rank = 1;
  EXPECT_EQ(exposed_communication(timeline, 0).transfer, Picoseconds(0));
}

TEST(TimeByKind, AddsDurationsOfOneRank) {
  Timeline timeline;
  timeline.intervals = {compute(0, 30), compute(40, 45), communication(0, 50, 70)};
  const auto times = time_by_kind(timeline, 0);
  EXPECT_EQ(times[std::size_t(OpKind::matmul)], Picoseconds(35));
  EXPECT_EQ(times[std::size_t(OpKind::all_reduce)], Picoseconds(20));
}

}  // namespace
}  // namespace plimsoll
