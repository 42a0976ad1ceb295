// Layer factors between the shapes that were fitted, and far from them.
#include "simulator/costs/layer_factors.h"

#include <gtest/gtest.h>

#include <cmath>

namespace plimsoll {
namespace {

const LayerShape kShape{4096, 1024, 2048, 2};

TEST(LayerFactors, NothingFittedIsOne) {
  EXPECT_EQ(layer_factor({}, kShape).factor, 1);
  EXPECT_DOUBLE_EQ(layer_factor({}, kShape).deviation, std::hypot(kSharedDeviation, kOwnDeviation));
}

TEST(LayerFactors, AKnownShapeIsItsPoint) {
  const std::vector<LayerPoint> points = {{kShape, 1.2, 0.01, 5}};
  EXPECT_EQ(layer_factor(points, kShape).factor, 1.2);
  EXPECT_EQ(layer_factor(points, kShape).deviation, 0.01);
}

// One point: the shared part of its logarithm at one distance unit is exp(-1/2) of it, and of its
// variance the shared part is kShared^2 / (kShared^2 + kOwn^2).
TEST(LayerFactors, ANeighbourTakesTheSharedPart) {
  const std::vector<LayerPoint> points = {{kShape, 1.2, 0, 5}};
  LayerShape near = kShape;
  near.hidden *= std::int64_t(kLayerWidth);
  const double shared = kSharedDeviation * kSharedDeviation, own = kOwnDeviation * kOwnDeviation;
  const double weight = shared * std::exp(-0.5) / (shared + own);
  const LayerFactor found = layer_factor(points, near);
  EXPECT_NEAR(std::log(found.factor), weight * std::log(1.2), 1e-12);
  EXPECT_NEAR(found.deviation * found.deviation, shared + own - shared * std::exp(-0.5) * weight,
              1e-12);
}

TEST(LayerFactors, FarFromAllPointsNothingIsKnown) {
  const std::vector<LayerPoint> points = {{kShape, 1.2, 0.01, 5}};
  const LayerFactor far = layer_factor(points, {1 << 20, 1 << 16, 1 << 16, 64});
  EXPECT_NEAR(far.factor, 1, 1e-9);
  EXPECT_NEAR(far.deviation, std::hypot(kSharedDeviation, kOwnDeviation), 1e-9);
}

TEST(LayerFactors, OperandsOfAnotherWidthSayNothing) {
  const std::vector<LayerPoint> points = {{kShape, 1.2, 0.01, 5}};
  LayerShape narrow = kShape;
  narrow.operand_bytes = 1;
  EXPECT_EQ(layer_factor(points, narrow).factor, 1);
}

TEST(LayerFactors, LayersWithExpertsAreOfAnotherKind) {
  LayerShape routed = kShape, wider = kShape;
  routed.routed = 4096;
  wider.routed = 4608;
  const std::vector<LayerPoint> points = {{kShape, 1.2, 0.01, 5}};
  EXPECT_EQ(layer_factor(points, routed).factor, 1);
  const std::vector<LayerPoint> of_experts = {{routed, 1.2, 0.01, 5}};
  EXPECT_EQ(layer_factor(of_experts, kShape).factor, 1);
  EXPECT_GT(layer_factor(of_experts, wider).factor, 1.05);
}

TEST(LayerFactors, StayWithinThePointsAndOne) {
  std::vector<LayerPoint> points;
  for (const std::int64_t tokens : {1024, 2048, 4096, 8192}) {
    points.push_back({{tokens, 1024, 2048, 2}, tokens == 2048 ? 0.9 : 1.1, 0.01, 1});
  }
  for (std::int64_t tokens = 256; tokens <= 65536; tokens += 256) {
    const double factor = layer_factor(points, {tokens, 1024, 2048, 2}).factor;
    EXPECT_GE(factor, 0.9);
    EXPECT_LE(factor, 1.1);
  }
}

TEST(LayerFactors, IntervalsGrowAwayFromWhatWasFitted) {
  FittedCalibration fitted;
  fitted.within_node = {0.03, 1.645};
  fitted.across_nodes = {0.05, 2};
  fitted.layers = {{kShape, 1.1, 0.01, 5}};
  EXPECT_NEAR(interval90_half_width(fitted, kShape, false),
              std::exp(1.645 * std::hypot(0.03, 0.01)) - 1, 1e-12);
  EXPECT_NEAR(interval90_half_width(fitted, kShape, true), std::exp(2 * std::hypot(0.05, 0.01)) - 1,
              1e-12);
  LayerShape far = kShape;
  far.hidden *= 16;
  EXPECT_GT(interval90_half_width(fitted, far, false),
            interval90_half_width(fitted, kShape, false));
}

}  // namespace
}  // namespace plimsoll
