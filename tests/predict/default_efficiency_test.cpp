// A GPU gets default efficiency where its cluster file does not state it.
#include "predict/default_efficiency.h"

#include <gtest/gtest.h>

#include <cmath>

#include "models/cluster/network_kind.h"
#include "models/presets/presets.h"
#include "predict/cost_basis.h"
#include "simulator/costs/layer_factors.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

/// Two cards of a kind that no preset has.
Cluster unknown() {
  Cluster result = preset_cluster("dgx-a100-80gb");
  result.name = "desk";
  result.devices_per_node = result.levels[0].devices = 2;
  result.device.name = "NVIDIA GeForce RTX 4090";
  result.device.peak_fp8 = FlopsPerSecond(3.3e14);
  result.efficiency.reset();
  return result;
}

CostBasis basis_on(const Cluster& cluster, const std::string& calibration = "") {
  std::vector<std::string> names;
  if (!calibration.empty()) names.push_back(calibration);
  return cost_basis(cluster, framework_by_name("megatron-lm"), read_calibration_choice(names),
                    "desk.json");
}

TEST(DefaultEfficiency, TheSameDeviceInAPresetSaysIt) {
  Cluster ours = preset_cluster("dgx-h100-80gb");
  const Efficiency known = *ours.efficiency;
  ours.name = "ours";
  ours.efficiency.reset();
  EXPECT_EQ(default_efficiency(ours).efficiency, known);
  EXPECT_EQ(default_efficiency(ours).open, 0);
  const CostBasis basis = basis_on(ours);
  EXPECT_EQ(basis.source.name, "dgx-h100-80gb--megatron-lm");
  EXPECT_EQ(basis.cluster.efficiency, basis_on(preset_cluster("dgx-h100-80gb")).cluster.efficiency);
}

TEST(DefaultEfficiency, ALevelReachesTheShareOfItsNetwork) {
  Cluster cluster = unknown();
  cluster.levels[1].network = "ethernet";
  const Efficiency found = default_efficiency(cluster).efficiency;
  EXPECT_EQ(found.levels[1].bandwidth_fraction, find_network_kind("ethernet")->bandwidth_fraction);
  EXPECT_EQ(found.levels[0], default_efficiency(unknown()).efficiency.levels[0]);
}

TEST(DefaultEfficiency, AnotherDeviceGetsMeansOfAll) {
  const DefaultEfficiency found = default_efficiency(unknown());
  const MatmulEfficiency& matmul = found.efficiency.matmul;
  EXPECT_GT(matmul.peak_fraction, 0.5);
  EXPECT_LT(matmul.peak_fraction, 0.85);
  EXPECT_GT(matmul.units, 60);
  EXPECT_LT(matmul.units, 160);
  EXPECT_NE(matmul.fp8_rate, 1);  // of devices that have such units: others state 1
  EXPECT_FALSE(matmul.fitted);    // measured on nothing
  EXPECT_GT(found.open, 0.1);
  EXPECT_LT(found.open, 0.6);
  ASSERT_EQ(found.efficiency.levels.size(), 2u);
  EXPECT_GT(found.efficiency.levels[1].bandwidth_fraction,
            found.efficiency.levels[0].bandwidth_fraction);
}

TEST(DefaultEfficiency, TypicalRatesTakeItAndSayHowOpenItIs) {
  const CostBasis basis = basis_on(unknown());
  EXPECT_EQ(basis.source.name, kTypicalCalibration);
  ASSERT_TRUE(basis.fitted && basis.cluster.efficiency);
  EXPECT_NE(basis.source.efficiency_words.find("not stated"), std::string::npos);
  EXPECT_LT(basis.cluster.efficiency->matmul.peak_fraction,
            default_efficiency(unknown()).efficiency.matmul.peak_fraction);
  const LayerShape shape{4096, 4096, 4096, 1, 2};
  const CostBasis stated = basis_on(preset_cluster("dgx-a100-80gb"), "typical");
  const double narrow = std::log(1 + interval90_half_width(*stated.fitted, shape, false));
  const double wide = std::log(1 + interval90_half_width(*basis.fitted, shape, false));
  EXPECT_NEAR(wide, std::hypot(narrow, default_efficiency(unknown()).open), 1e-9);
  EXPECT_EQ(basis_on(unknown(), "typical").cluster, basis.cluster);
}

TEST(DefaultEfficiency, OwnNumbersStayDatasheetRates) {
  const CostBasis none = basis_on(unknown(), "none");
  EXPECT_FALSE(none.cluster.efficiency);
  EXPECT_EQ(none.source.words, "no calibration, datasheet rates");
}

}  // namespace
}  // namespace plimsoll
