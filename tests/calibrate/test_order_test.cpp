// The order of tests puts essential ones first, then those where interpolation is likeliest to be
// wrong. The reference tells of falling clocks, and a schedule has a cost before it is run.
#include "calibrate/schedule/test_order.h"

#include <gtest/gtest.h>

#include <set>

#include "base/json.h"
#include "calibrate/measure/statistics.h"
#include "calibrate/schedule/schedule_cost.h"

namespace plimsoll {
namespace {

CalibrationTest all_reduce_test(std::int64_t bytes, bool essential = false) {
  CollectivePoint point;
  point.ranks = 2;
  point.payload = Bytes(bytes);
  return {"all_reduce " + std::to_string(bytes), point, essential};
}

TEST(TestOrder, EssentialFirstAndThenWhereTheCurveBends) {
  std::vector<CalibrationTest> tests;
  for (std::int64_t bytes = 1; bytes <= 1 << 12; bytes *= 2) {
    tests.push_back(all_reduce_test(bytes, bytes == 1 || bytes == 64 || bytes == 4096));
  }
  // Latency up to 64 bytes, half of the way to bandwidth at 4096.
  const auto time = [](std::int64_t bytes) {
    return Seconds(double(std::max<std::int64_t>(bytes, 512)));
  };
  TestOrder test_order(tests, Seconds(100));
  std::vector<std::int64_t> order;
  while (const auto i = test_order.next(Seconds(1))) {
    const std::int64_t bytes = std::get<CollectivePoint>(tests[*i].subject).payload.count();
    order.push_back(bytes);
    test_order.measured(*i, false, time(bytes), Seconds(1));
    if (order.size() == 5) break;
  }
  ASSERT_EQ(order.size(), 5u);
  EXPECT_EQ((std::vector<std::int64_t>(order.begin(), order.begin() + 3)),
            (std::vector<std::int64_t>{1, 64, 4096}));
  EXPECT_GT(order[3], 64);  // below, nothing bends
  EXPECT_GT(order[4], 64);
}

/// A shaped link lets a burst pass at once: the curve is steeper than bandwidth alone.
TEST(TestOrder, WhereTimeJumpsBeforeWhereItIsStraight) {
  std::vector<CalibrationTest> tests;
  for (const std::int64_t kib : {1, 4, 16, 64, 256, 1024, 4096}) {
    tests.push_back(all_reduce_test(kib << 10, kib == 1 || kib == 64 || kib == 4096));
  }
  TestOrder test_order(tests, Seconds(100));
  // By bandwidth alone from 1 to 64 KiB, 94 times as long for 64 times the bytes above.
  for (const auto& [place, time] : {std::pair(0, 1.0), {3, 64.0}, {6, 64.0 * 94}}) {
    EXPECT_EQ(test_order.next(Seconds(1)), std::size_t(place));
    test_order.measured(std::size_t(place), false, Seconds(time), Seconds(1));
  }
  EXPECT_EQ(test_order.next(Seconds(1)), 4u);
}

TEST(TestOrder, TheBudgetEndsItButNotEssentialTests) {
  const std::vector<CalibrationTest> tests = {all_reduce_test(1), all_reduce_test(2, true),
                                              all_reduce_test(4, true)};
  TestOrder test_order(tests, Seconds(10));
  EXPECT_EQ(test_order.next(Seconds(11)), 1u);
  test_order.measured(1, false, Seconds(1), Seconds(1));
  EXPECT_EQ(test_order.next(Seconds(11)), 2u);
  test_order.measured(2, false, Seconds(1), Seconds(1));
  EXPECT_EQ(test_order.next(Seconds(11)), std::nullopt);
  EXPECT_EQ(test_order.left_out(), 1u);
  EXPECT_EQ(test_order.next(Seconds(9)), 0u);
}

TEST(TestOrder, UnsteadyOnesAgainAndForgottenOnesAnew) {
  const std::vector<CalibrationTest> tests = {all_reduce_test(1), all_reduce_test(2),
                                              all_reduce_test(4)};
  TestOrder test_order(tests, Seconds(10));
  test_order.restored(0, false, Seconds(1));
  test_order.restored(1, true, Seconds(1));
  test_order.restored(2, false, Seconds(1));
  EXPECT_EQ(test_order.next(Seconds(0)), 1u);
  test_order.forget(2);
  EXPECT_EQ(test_order.next(Seconds(0)), 2u);
}

/// As after a drift: what was found before it stays, and is not what is measured first.
TEST(TestOrder, AForgottenTestThatIsRestoredWasMeasuredOnce) {
  const std::vector<CalibrationTest> tests = {all_reduce_test(1), all_reduce_test(2),
                                              all_reduce_test(4)};
  TestOrder test_order(tests, Seconds(10));
  test_order.measured(0, true, Seconds(1), Seconds(1));
  test_order.measured(0, true, Seconds(1), Seconds(1));
  test_order.measured(1, false, Seconds(1), Seconds(1));
  test_order.forget(0);
  EXPECT_EQ(test_order.left_out(), 2u);
  test_order.restored(0, false, Seconds(1));
  EXPECT_EQ(test_order.left_out(), 1u);
  EXPECT_EQ(test_order.next(Seconds(0)), 2u);
  test_order.measured(2, false, Seconds(1), Seconds(1));
  EXPECT_EQ(test_order.next(Seconds(0)), 0u);  // once more, like the others
}

TEST(TestOrder, EveryKindOfTestHasAShareOfTheBudget) {
  std::vector<CalibrationTest> tests = {all_reduce_test(1), all_reduce_test(2)};
  for (int i = 0; i < 2; ++i) tests.push_back({"launch", LaunchTest{}, false});
  for (int i = 0; i < 2; ++i) tests.push_back({"copy", CopyPoint{}, false});
  TestOrder test_order(tests, Seconds(10));
  for (std::size_t i : {0, 2, 4}) test_order.measured(i, false, Seconds(1), Seconds(1));
  EXPECT_EQ(test_order.next(Seconds(0)), 3u);  // less behind than a collective, and before copies
  test_order.measured(3, false, std::nullopt, Seconds(1));
  EXPECT_EQ(test_order.next(Seconds(0)), 5u);
}

/// Equal times give an equal order.
TEST(TestOrder, IsDeterministic) {
  const std::vector<CalibrationTest> tests = schedule({2, 2}, SweepSize::quick, DType::f32);
  const auto order = [&] {
    TestOrder test_order(tests, Seconds(1e6));
    std::vector<std::size_t> order;
    while (const auto i = test_order.next(Seconds(0))) {
      order.push_back(*i);
      test_order.measured(*i, *i % 3 == 0, Seconds(1e-6 * double(*i % 7 + 1)), Seconds(0.01));
    }
    return order;
  };
  EXPECT_EQ(order(), order());
  EXPECT_EQ(order().size(), 2 * tests.size());  // all of them twice
}

TEST(ReferenceDrift, WhatWasMeasuredWhileClocksFellIsMeasuredAgain) {
  ReferenceDrift drift;
  EXPECT_TRUE(drift.due(Seconds(0)));
  EXPECT_TRUE(drift.check_reference(Seconds(1.0), Seconds(0)).empty());
  EXPECT_FALSE(drift.due(Seconds(100)));
  for (std::size_t i = 0; i < ReferenceDrift::kMostTests; ++i) drift.tested(i);
  EXPECT_FALSE(drift.due(Seconds(1)));
  EXPECT_TRUE(drift.due(Seconds(3)));
  EXPECT_TRUE(drift.check_reference(Seconds(1.09), Seconds(3)).empty());
  for (std::size_t i : {41, 40, 41}) drift.tested(i);  // in both passes
  EXPECT_EQ(drift.check_reference(Seconds(1.2), Seconds(6)), (std::vector<std::size_t>{40, 41}));
  EXPECT_EQ(drift.discarded(), 2u);
  EXPECT_NE(drift.summary().find("20 %"), std::string::npos) << drift.summary();
  // It stays slow: that is what the machine has settled at.
  drift.tested(40);
  EXPECT_TRUE(drift.check_reference(Seconds(1.2), Seconds(9)).empty());
  drift.tested(41);
  EXPECT_TRUE(drift.check_reference(Seconds(1.25), Seconds(12)).empty());
  EXPECT_EQ(drift.discarded(), 2u);
}

TEST(ReferenceDrift, AFasterReferenceIsTheNewMeasure) {
  ReferenceDrift drift;
  drift.check_reference(Seconds(1.0), Seconds(0));
  drift.check_reference(Seconds(0.8), Seconds(1));
  drift.tested(7);
  EXPECT_EQ(drift.check_reference(Seconds(0.9), Seconds(2)), (std::vector<std::size_t>{7}));
  EXPECT_TRUE(ReferenceDrift().summary().empty());
}

TEST(MedianError, IsTheIntervalOfOrderStatistics) {
  std::vector<Seconds> timings;
  for (int i = 1; i <= 101; ++i) timings.push_back(Seconds(i));
  // 101 / 2 -+ 0.98 sqrt(101): places 40 and 61, values 41 and 62, around 51.
  EXPECT_NEAR(median_error(timings), 21.0 / 51 / 2, 1e-12);
  EXPECT_EQ(median_error(std::vector<Seconds>(7, Seconds(2))), 0);
  timings.resize(7);
  EXPECT_NEAR(median_error(timings), 6.0 / 4 / 2, 1e-12);  // of few the whole range
}

Cluster h100() {
  Cluster cluster = read_cluster(PLIMSOLL_SOURCE_DIR "/models/presets/clusters/dgx-h100-80gb.json");
  cluster.nodes = 125;
  return cluster;
}

TEST(ScheduleCost, AThousandRanksTakeMinutesAndOneFile) {
  const ClusterShape shape{125, 8};
  const std::string text = schedule_json(shape, h100(), SweepSize::full, DType::f32, Seconds(300));
  EXPECT_EQ(text, schedule_json(shape, h100(), SweepSize::full, DType::f32, Seconds(300)));
  const Json json = parse_json(text, "f");
  EXPECT_EQ(json["ranks"], 1000);
  EXPECT_LT(json["tests"].get<int>(), 4000);
  EXPECT_EQ(json["keys"].size(), json["tests"].get<std::size_t>());
  std::set<std::string> keys;
  for (const Json& key : json["keys"]) keys.insert(key.get<std::string>());
  EXPECT_EQ(keys.size(), json["keys"].size());
  EXPECT_LT(json["time_s"].get<double>(), 3600);
  EXPECT_LE(json["reached"].get<int>(), json["tests"].get<int>());
}

/// NCCL connects once for each grid and keeps it; a second and a third payload cost nothing more.
TEST(ScheduleCost, ConnectingDevicesIsCountedOnceForEachShape) {
  const auto total = [](CommunicatorKind communicator, int payloads) {
    std::vector<CalibrationTest> tests;
    for (int i = 0; i < payloads; ++i) {
      for (std::int64_t ranks : {2, 4}) {
        tests.push_back(all_reduce_test(1024));
        auto& point = std::get<CollectivePoint>(tests.back().subject);
        point.ranks = ranks;
        point.communicator = communicator;
      }
    }
    Seconds sum;
    for (const SchedulePart& part : schedule_parts(tests, h100(), SweepSize::quick)) {
      sum += part.time;
    }
    return sum.value();
  };
  for (int payloads : {1, 3}) {
    EXPECT_NEAR(total(CommunicatorKind::nccl, payloads) - total(CommunicatorKind::mpi, payloads),
                2 * 2.0, 1e-9);
  }
}

TEST(ScheduleCost, DoublingTheNodesAddsATermNotAFactor) {
  Cluster cluster = h100();
  const auto total = [&](std::int64_t nodes) {
    cluster.nodes = nodes;
    Seconds sum;
    const auto tests = schedule({nodes, 8}, SweepSize::full, DType::f32);
    for (const SchedulePart& part : schedule_parts(tests, cluster, SweepSize::full))
      sum += part.time;
    return sum.value();
  };
  EXPECT_GT(total(64), total(8));
  EXPECT_LT(total(64), 3 * total(8));
}

}  // namespace
}  // namespace plimsoll
