// Intervals of step times and of ratios of two: their constants, and arithmetic by hand.
#include "predict/step_interval.h"

#include <gtest/gtest.h>

#include <cmath>

#include "predict/default_efficiency.h"
#include "predict/plan_difference.h"
#include "simulator/costs/layer_factors.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

constexpr std::array kAll = {TimeBasis::kernels, TimeBasis::typical, TimeBasis::fit,
                             TimeBasis::fit_of_model};

TEST(StepInterval, SpreadsRestOnRunsOfSeveralDocuments) {
  for (const TimeBasis basis : kAll) {
    const SourceSpread& spread = source_spread(basis);
    EXPECT_GE(spread.documents, 4) << to_text(basis);
    EXPECT_GE(spread.runs, spread.documents) << to_text(basis);
    EXPECT_GT(spread.half_width, 0.01) << to_text(basis);
  }
}

TEST(StepInterval, OnlyWhatKernelsReachAloneIsOffToOneSide) {
  const StepInterval kernels = unseen_source({TimeBasis::kernels});
  EXPECT_GT(source_spread(TimeBasis::kernels).centre, 0);  // training runs take longer
  EXPECT_GT(kernels.low * kernels.high, 1);
  for (const TimeBasis basis : {TimeBasis::typical, TimeBasis::fit, TimeBasis::fit_of_model}) {
    const StepInterval interval = unseen_source({basis});
    EXPECT_NEAR(interval.low * interval.high, 1, 1e-12) << to_text(basis);
  }
}

TEST(StepInterval, WhatABasisLeavesOpenAddsAsSquares) {
  const double of_source = source_spread(TimeBasis::fit).half_width;
  const StepInterval interval = unseen_source({TimeBasis::fit, 0.3});
  EXPECT_NEAR(std::log(interval.high), std::hypot(of_source, 0.3), 1e-12);
  EXPECT_NEAR(interval.half_width(), interval.high - 1, 1e-12);
}

TEST(StepInterval, CausesAddAsSquaresOfTheirShares) {
  const double of_source = source_spread(TimeBasis::fit).half_width;
  for (std::size_t i = 0; i < kTimeCauses; ++i) {
    StepOpen open{TimeBasis::fit, 0.1};
    open.causes[i] = 0.5;
    const double added = 0.5 * cause_spreads()[i];
    EXPECT_NEAR(std::log(unseen_source(open).high),
                std::sqrt(of_source * of_source + 0.01 + added * added), 1e-12)
        << to_text(TimeCause(i));
  }
}

TEST(StepInterval, CausesAreSharesOfTheStepAndWhatNoFitHas) {
  const Cluster h100 = preset_cluster("dgx-h100-80gb");
  const auto open = [&](const std::string& framework, const Cluster& cluster, const Job& job,
                        const Breakdown& parts = {}) {
    const Framework preset = framework_by_name(framework);
    const auto typical = typical_calibration(cluster, preset);
    return step_open(CostModel(cluster, std::nullopt, preset, typical), job,
                     {{4096, 4096, 4096}, 8, Seconds(10), parts}, 0);
  };
  Job dense, routed;
  routed.experts.emplace();
  Breakdown parts;
  parts.exposed_communication = Seconds(2);
  parts.bubble = Seconds(1);
  parts.dispatch = Seconds(4);
  const StepOpen known = open("torchtitan", h100, dense, parts);
  EXPECT_EQ(known.basis, TimeBasis::typical);
  EXPECT_NEAR(known.own, 0, 1e-6);  // the efficiency is that of the cluster file
  EXPECT_EQ(known.causes, (TimeCauses{0, 0, 0, 0.2, 0.1, 0.4}));
  EXPECT_EQ(open("torchtitan", h100, routed).causes, (TimeCauses{1}));
  EXPECT_EQ(open("paddle-2.2", h100, dense).causes, (TimeCauses{0, 1}));
  EXPECT_EQ(open("torchtitan", preset_cluster("hgx-h200"), dense).causes, (TimeCauses{0, 0, 1}));
}

TEST(StepInterval, WhatWasMeasuredIsNarrower) {
  const StepInterval rest = unseen_source({TimeBasis::fit, 0.1});
  const double half = std::log(rest.high);
  EXPECT_EQ(with_measured(rest, {}).high, rest.high);
  // A quarter of the step is communication that was measured to 2 %.
  const StepInterval joined = with_measured(rest, {0, 0.25, 0.02});
  EXPECT_NEAR(std::log(joined.high), std::hypot(0.75 * half, 0.25 * std::log(1.02)), 1e-12);
  EXPECT_NEAR(joined.low * joined.high, 1, 1e-12);
  EXPECT_LT(joined.half_width(), rest.half_width());
}

TEST(StepInterval, MeasuredKernelsAreThoseThatRunAlone) {
  const StepInterval alone = unseen_source({TimeBasis::kernels});
  const StepInterval rest = unseen_source({TimeBasis::typical});
  const StepInterval all = with_measured(rest, {1, 0, 0});
  EXPECT_NEAR(all.low, alone.low, 1e-12);
  EXPECT_NEAR(all.high, alone.high, 1e-12);
  // Half of them: half as far to one side, and both halves off alike.
  const StepInterval joined = with_measured(rest, {0.5, 0, 0});
  const double centre = source_spread(TimeBasis::kernels).centre;
  EXPECT_NEAR(std::log(joined.low * joined.high) / 2, centre / 2, 1e-12);
  EXPECT_NEAR(std::log(joined.high / joined.low),
              (std::log(alone.high / alone.low) + std::log(rest.high / rest.low)) / 2, 1e-12);
}

TEST(StepInterval, HoldsItsEnds) {
  const StepInterval interval{0.8, 1.3};
  EXPECT_TRUE(interval.holds(0.8));
  EXPECT_TRUE(interval.holds(1.3));
  EXPECT_FALSE(interval.holds(0.79));
  EXPECT_FALSE(interval.holds(1.31));
  EXPECT_NEAR(around(std::log(1.25)).low, 0.8, 1e-12);
}

TEST(StepInterval, BasisFollowsFromTheCalibration) {
  EXPECT_EQ(basis_of(std::nullopt, {}), TimeBasis::kernels);
  FittedCalibration fitted;
  EXPECT_EQ(basis_of(fitted, {}), TimeBasis::typical);
  fitted.runs = 12;
  EXPECT_EQ(basis_of(fitted, {32, 4096}), TimeBasis::fit);
  fitted.sizes = {{32, 4096}};
  EXPECT_EQ(basis_of(fitted, {32, 4096}), TimeBasis::fit_of_model);
}

PlanTime step(double seconds, double bubble, std::int64_t tokens = 4096) {
  PlanTime plan;
  plan.step_time = Seconds(seconds);
  plan.breakdown.bubble = Seconds(bubble);
  plan.breakdown.forward = Seconds((seconds - bubble) / 3);
  plan.breakdown.backward = Seconds((seconds - bubble) * 2 / 3);
  plan.shape = {tokens, 2048, 4096, 4, 2};
  return plan;
}

TEST(PlanDifference, GrowsWithWhatThePlansDoNotShare) {
  for (const TimeBasis basis : kAll) {
    const PlanTime plan = step(10, 1);
    EXPECT_EQ(difference_half_width(basis, plan, plan), 0) << to_text(basis);
    const double alike = difference_half_width(basis, plan, step(11, 1.1));
    const double bubbles = difference_half_width(basis, plan, step(10, 5));
    const double shapes = difference_half_width(basis, plan, step(11, 1.1, 8192));
    EXPECT_GT(alike, 0) << to_text(basis);
    EXPECT_GE(bubbles, alike) << to_text(basis);
    EXPECT_GE(shapes, alike) << to_text(basis);
    // Errors in common cancel: less than two steps by themselves leave open.
    EXPECT_LT(alike, std::sqrt(2) * std::log(1 + unseen_source({basis}).half_width()));
    // Either way round.
    EXPECT_DOUBLE_EQ(bubbles, difference_half_width(basis, step(10, 5), plan));
  }
}

/// Returns `plan` with a step `factor` times as long, and alike in all else.
PlanTime times(const PlanTime& plan, double factor) {
  return step(plan.step_time.value() * factor, plan.breakdown.bubble.value() * factor);
}

TEST(PlanDifference, HoldsOneWithinItsHalfWidth) {
  Cluster cluster = small_cluster();
  cluster.device.kind = DeviceKind::gpu;
  const CostModel costs(cluster, std::nullopt, framework_by_name("megatron-lm"));
  const PlanTime plan = step(10, 1);
  const double half = difference_half_width(TimeBasis::kernels, plan, times(plan, 1.1));
  EXPECT_TRUE(step_ratio(costs, times(plan, std::exp(0.9 * half)), plan).tied);
  EXPECT_FALSE(step_ratio(costs, times(plan, std::exp(1.1 * half)), plan).tied);
  EXPECT_FALSE(step_ratio(costs, times(plan, std::exp(-1.1 * half)), plan).tied);
  const StepRatio ratio = step_ratio(costs, times(plan, 1.25), plan);
  EXPECT_NEAR(std::sqrt(ratio.low * ratio.high), 1.25, 1e-12);
  EXPECT_NEAR(std::log(ratio.high / 1.25), half, 1e-12);
  EXPECT_EQ(step_ratio(costs, plan, plan).low, 1);  // the same in all that is known
  EXPECT_EQ(step_ratio(costs, plan, plan).high, 1);
}

TEST(StepInterval, OfOnesOwnRunsOfTheModelIsTheFitsOwnAndOfOthersWider) {
  Job job;
  job.layers = 32, job.hidden = 4096;
  FittedCalibration fitted;
  fitted.runs = 12;
  fitted.within_node = {0.02, 2};
  fitted.across_nodes = {0.05, 2};
  Cluster cluster = small_cluster();
  cluster.device.kind = DeviceKind::gpu;
  const std::int64_t node = cluster.devices_per_node;
  const LayerShape shape = step(10, 1).shape;
  const auto costs = [&] {
    return CostModel(cluster, std::nullopt, framework_by_name("megatron-lm"), fitted);
  };
  const auto half = [&](std::int64_t devices) {
    return std::log1p(step_interval(costs(), job, {shape, devices, {}, {}}, 0, {}).half_width());
  };
  const double own = std::log1p(interval90_half_width(fitted, shape, false));
  const double wide = std::log1p(unseen_source({TimeBasis::fit, own}).half_width());
  const double of_others = std::log1p(unseen_source({TimeBasis::fit_of_model, own}).half_width());
  EXPECT_LT(own, of_others);
  EXPECT_LE(of_others, 1.001 * wide);
  EXPECT_NEAR(half(node), wide, 1e-12);  // no run of this model
  EXPECT_FALSE(own_half_width(costs(), job, shape, node));
  fitted.sizes = {{32, 4096, 8}};
  EXPECT_NEAR(half(node), wide, 1e-12);  // its layers have experts
  fitted.sizes = {{32, 4096, 0}};
  EXPECT_NEAR(half(node), of_others, 1e-12);  // of other people
  EXPECT_FALSE(own_half_width(costs(), job, shape, node));
  fitted.of_same_people = true;
  EXPECT_NEAR(half(node), own, 1e-12);
  EXPECT_NEAR(half(2 * node), std::log1p(interval90_half_width(fitted, shape, true)), 1e-12);
  EXPECT_GT(half(2 * node), own);
}

TEST(PlanDifference, IsNoWiderThanTheErrorsOfBothSteps) {
  Cluster cluster = small_cluster();
  cluster.device.kind = DeviceKind::gpu;
  const CostModel costs(cluster, std::nullopt, framework_by_name("megatron-lm"));
  PlanTime plan = step(10, 1), other = step(11, 5, 8192);
  const double wide = std::log(step_ratio(costs, other, plan).high / 1.1);
  plan.open = 0.01;
  EXPECT_NEAR(std::log(step_ratio(costs, other, plan).high / 1.1), wide, 1e-12);
  other.open = 0.02;
  EXPECT_NEAR(std::log(step_ratio(costs, other, plan).high / 1.1), std::hypot(0.01, 0.02), 1e-12);
  other.open = 2;
  EXPECT_NEAR(std::log(step_ratio(costs, other, plan).high / 1.1), wide, 1e-12);
}

TEST(PlanDifference, OfMeasuredCoresIsWhatStepsAreOffBesideTheirOps) {
  Calibration calibration;
  const Sample time = {Seconds(1e-6), Seconds(0), 7, false};
  calibration.dispatch_op = calibration.dispatch_call = calibration.wake_up = time;
  const CostModel costs(small_cluster(), calibration, bundled_framework());
  const PlanTime plan = step(10, 1);
  const double half = std::log(step_ratio(costs, step(11, 5, 8192), plan).high / 1.1);
  EXPECT_NEAR(half, std::hypot(kBesideOps, kBesideOps), 1e-12);
  EXPECT_EQ(step_ratio(costs, plan, plan).high, 1);
}

}  // namespace
}  // namespace plimsoll
