// Schedules: the group shapes of a cluster, stable keys, and a length that does not grow with the
// square of the cluster.
#include "calibrate/schedule/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

namespace plimsoll {
namespace {

using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // ranks, nodes, at once

std::set<Shape> shapes(const std::vector<CollectivePoint>& points) {
  std::set<Shape> found;
  for (const CollectivePoint& point : points) {
    EXPECT_TRUE(found.emplace(point.ranks, point.nodes, point.groups_per_node).second);
    EXPECT_EQ(point.communicator, CommunicatorKind::mpi);
  }
  return found;
}

TEST(GroupShapes, OfTwoHostsWithOneRankEach) {
  EXPECT_EQ(shapes(group_shapes({2, 1})), (std::set<Shape>{{2, 2, 1}}));
  EXPECT_EQ(shapes(transfer_shapes({2, 1})), (std::set<Shape>{{2, 2, 1}}));
}

TEST(GroupShapes, InsideANodeOneGroupAndAllThatFit) {
  EXPECT_EQ(shapes(group_shapes({1, 4})), (std::set<Shape>{{2, 1, 1}, {2, 1, 2}, {4, 1, 1}}));
  EXPECT_EQ(shapes(transfer_shapes({1, 4})), (std::set<Shape>{{2, 1, 1}, {2, 1, 2}}));
  EXPECT_TRUE(group_shapes({1, 1}).empty());
  EXPECT_TRUE(transfer_shapes({1, 1}).empty());
}

TEST(GroupShapes, AcrossNodesOneRankOfEachAloneOrWithAllAndAllRanks) {
  EXPECT_EQ(shapes(group_shapes({3, 2})),
            (std::set<Shape>{
                {2, 1, 1}, {2, 2, 1}, {2, 2, 2}, {4, 2, 1}, {3, 3, 1}, {3, 3, 2}, {6, 3, 1}}));
}

std::size_t collectives_of(const ClusterShape& cluster) {
  std::size_t count = 0;
  for (const CalibrationTest& test : schedule(cluster, SweepSize::full, DType::f32)) {
    count += std::holds_alternative<CollectivePoint>(test.subject);
  }
  return count;
}

TEST(Schedule, GrowsWithTheLogarithmOfTheNodes) {
  const std::size_t small = collectives_of({8, 8}), large = collectives_of({128, 8});
  // Spans of 16, 32, 64, 128: shapes, kinds, payloads; of many ranks the smallest are equal.
  EXPECT_LE(large - small, 4u * 3 * 3 * 10);
  EXPECT_GT(large - small, 4u * 3 * 3 * 9);
  EXPECT_LT(schedule({125, 8}, SweepSize::full, DType::f32).size(), 4000u);
}

TEST(Schedule, KeysAreOfOneTestEachAndTheSameInEveryRun) {
  for (const ClusterShape& cluster : {ClusterShape{2, 1}, ClusterShape{2, 2}, ClusterShape{5, 6}}) {
    const std::vector<CalibrationTest> tests = schedule(cluster, SweepSize::full, DType::bf16);
    const std::vector<CalibrationTest> again = schedule(cluster, SweepSize::full, DType::bf16);
    ASSERT_EQ(tests.size(), again.size());
    std::set<std::string> keys;
    for (std::size_t i = 0; i < tests.size(); ++i) {
      EXPECT_TRUE(keys.insert(tests[i].key).second) << tests[i].key;
      EXPECT_EQ(tests[i].key, again[i].key);
    }
  }
  const std::vector<CalibrationTest> tests = schedule({2, 2}, SweepSize::quick, DType::f32);
  std::set<std::string> keys;
  for (const CalibrationTest& test : tests) keys.insert(test.key);
  EXPECT_TRUE(keys.contains("dispatch"));
  EXPECT_TRUE(keys.contains("all_reduce ranks=4 nodes=2 groups_per_node=1 bytes=65536"));
  EXPECT_TRUE(keys.contains("send ranks=2 nodes=2 groups_per_node=2 bytes=1024"));
  EXPECT_TRUE(
      keys.contains("matmul during all_reduce ranks=2 nodes=2 groups_per_node=2 bytes=65536"));
}

TEST(Schedule, PayloadsDivideIntoAPartForEveryRank) {
  for (const CalibrationTest& test : schedule({3, 5}, SweepSize::full, DType::f32)) {
    if (const auto* point = std::get_if<CollectivePoint>(&test.subject)) {
      EXPECT_EQ(point->payload.count() % (4 * point->ranks), 0) << test.key;
    }
  }
}

TEST(Schedule, EssentialTestsOfAKindComeFirst) {
  std::set<std::size_t> seen_others;
  for (const CalibrationTest& test : schedule({2, 2}, SweepSize::full, DType::f32)) {
    if (test.essential) {
      EXPECT_FALSE(seen_others.contains(test.subject.index())) << test.key;
    } else {
      seen_others.insert(test.subject.index());
    }
  }
  EXPECT_EQ(seen_others.size(), 4u);
}

/// Nothing tells how long an op of fewer bytes than were ever timed takes.
TEST(Schedule, OfCoresHoldsTheSmallestAndTheUsualSizeOfEveryOp) {
  std::map<std::pair<OpKind, DType>, std::set<Bytes>> sizes;
  for (const CalibrationTest& test : schedule({1, 2}, SweepSize::full, DType::bf16)) {
    const auto* op = std::get_if<OpPoint>(&test.subject);
    if (op != nullptr && test.essential) sizes[{op->kind, op->dtype}].insert(op->moved);
  }
  EXPECT_GT(sizes.size(), 40u);
  for (const auto& [op, essential] : sizes) {
    EXPECT_EQ(essential, (std::set{Bytes(16 << 10), Bytes(1 << 20)})) << to_text(op.first);
  }
}

TEST(Schedule, OfDevicesHoldsTheirSizesLaunchesAndCopies) {
  const auto tests = schedule({2, 8}, SweepSize::full, DType::bf16, CommunicatorKind::nccl);
  std::set<std::string> keys, essential;
  for (const CalibrationTest& test : tests) {
    EXPECT_TRUE(keys.insert(test.key).second) << test.key;
    if (test.essential) essential.insert(test.key);
    if (const auto* point = std::get_if<CollectivePoint>(&test.subject)) {
      EXPECT_EQ(point->communicator, CommunicatorKind::nccl);
    }
  }
  for (const char* key :
       {"launch", "copy to_device pageable bytes=67108864", "matmul f32 1x4096x4096x1024",
        "all_reduce ranks=16 nodes=2 groups_per_node=1 bytes=67108864",
        "matmul bf16 1x8192x3072x1024 bias", "matmul bf16 1x2048x8192x8192 a^T accumulate"}) {
    EXPECT_TRUE(essential.contains(key)) << key;
  }
  EXPECT_TRUE(keys.contains("all_reduce ranks=16 nodes=2 groups_per_node=1 bytes=268435456"));
  EXPECT_FALSE(keys.contains("matmul f32 1x8192x3072x1024 bias"));
}

}  // namespace
}  // namespace plimsoll
