// Workloads: what a plan runs decides what is measured first.
#include "calibrate/schedule/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "calibrate/schedule/test_order.h"
#include "models/framework/framework.h"
#include "tests/plan/example_plan.h"

namespace plimsoll {
namespace {

TEST(Workload, HoldsTheOpsOfThePlanAndItsRunnersUp) {
  Plan plan = example_plan();  // dp 2, pp 2
  plan.runners_up.clear();
  const Workload alone = workload_of(plan);
  double flops = 0;
  for (const auto& one : alone.matmuls) {
    EXPECT_GT(one.flops, 0);
    flops += one.flops;
  }
  EXPECT_GT(flops, 0);
  const auto has = [](const Workload& workload, OpKind kind, std::int64_t ranks) {
    return std::any_of(workload.communications.begin(), workload.communications.end(),
                       [&](const Workload::Communication& one) {
                         return one.point.kind == kind && one.point.ranks == ranks;
                       });
  };
  EXPECT_TRUE(has(alone, OpKind::send, 2));
  EXPECT_TRUE(has(alone, OpKind::all_reduce, 2));
  EXPECT_FALSE(has(alone, OpKind::recv, 2));  // measured as sends
  EXPECT_FALSE(has(alone, OpKind::all_reduce, 4));

  RunnerUp other;
  other.strategy = parse_strategy("dp=4");
  plan.runners_up = {other};
  EXPECT_TRUE(has(workload_of(plan), OpKind::all_reduce, 4));
}

CollectivePoint all_reduce(std::int64_t ranks, std::int64_t bytes) {
  CollectivePoint point;
  point.ranks = ranks;
  point.payload = Bytes(bytes);
  return point;
}

TEST(Weights, GoToTheNearestPoints) {
  Workload workload;
  workload.communications = {{all_reduce(2, 1'100), 4}, {all_reduce(2, 90'000), 8}};
  const std::vector<CollectivePoint> points = {all_reduce(2, 1'000), all_reduce(2, 10'000),
                                               all_reduce(2, 100'000), all_reduce(8, 100'000)};
  EXPECT_EQ(weights(workload, std::span(points)), (std::vector<double>{0.5, 0, 1, 0}));
  // Nothing of that kind: all alike.
  EXPECT_EQ(weights(Workload(), std::span(points)), std::vector<double>(4, 1));
}

TEST(Weights, ProductsAreOfOneForm) {
  MatmulPoint forward;
  forward.shape = {1, 128, 128, 128};
  MatmulPoint gradient = forward;
  gradient.transpose_a = true;
  Workload workload;
  workload.matmuls = {{gradient, 3}};
  const std::vector<MatmulPoint> points = {forward, gradient};
  EXPECT_EQ(weights(workload, std::span(points)), (std::vector<double>{0, 1}));
}

TEST(ChoiceOfAPlan, WhatThePlanRunsComesFirst) {
  std::vector<CalibrationTest> tests;
  for (const std::int64_t ranks : {2, 8}) {
    for (std::int64_t bytes = 1; bytes <= 1 << 12; bytes *= 4) {
      const bool end = bytes == 1 || bytes == 1 << 12;
      tests.push_back(
          {std::to_string(ranks) + " " + std::to_string(bytes), all_reduce(ranks, bytes), end});
    }
  }
  Workload workload;
  workload.communications = {{all_reduce(8, 64), 1}};
  const auto order = [&](std::vector<double> weights) {
    TestOrder test_order(tests, Seconds(1e6), std::move(weights));
    std::vector<std::string> keys;
    while (const auto i = test_order.next(Seconds(0))) {
      const auto& point = std::get<CollectivePoint>(tests[*i].subject);
      test_order.measured(*i, false, Seconds(1e-6 * std::sqrt(double(point.payload.count()))),
                          Seconds(1));
      keys.push_back(tests[*i].key);
      if (keys.size() == 5) break;
    }
    return keys;
  };
  EXPECT_EQ(order({}).back().front(), '2');  // of equal doubts the first
  EXPECT_EQ(order(weights(workload, std::span<const CalibrationTest>(tests))).back(), "8 64");
}

}  // namespace
TEST(Workload, AddsItsShapesToTheTests) {
  const std::vector<CalibrationTest> known_tests =
      schedule({1, 2}, SweepSize::quick, DType::f32, CommunicatorKind::local);
  const MatmulPoint known = matmul_sweep(SweepSize::quick).back();
  MatmulPoint other = known, half = known;
  other.shape.m += 1;
  half.dtype = DType::bf16;  // no test has a product of this type
  Workload workload;
  workload.matmuls = {{known, 1}, {other, 1}, {half, 1}};
  const std::vector<CalibrationTest> tests = with_shapes(workload, known_tests);
  ASSERT_EQ(tests.size(), known_tests.size() + 1);
  EXPECT_EQ(std::get<MatmulPoint>(tests.back().subject).shape, other.shape);
  EXPECT_EQ(tests.back().key, test_key(other));
  // The exact shape stands for itself, and its neighbour for nothing but its own.
  const std::vector<double> of_tests = weights(workload, std::span<const CalibrationTest>(tests));
  EXPECT_EQ(of_tests.back(), 1);
  const auto of_known = std::ranges::find(tests, test_key(known), &CalibrationTest::key);
  EXPECT_EQ(of_tests[std::size_t(of_known - tests.begin())], 1);
}

}  // namespace plimsoll
