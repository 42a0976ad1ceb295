// A fit on one cluster is applied to other clusters of its device.
#include "predict/fit_transfer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "models/presets/presets.h"
#include "predict/cost_basis.h"
#include "predict/default_efficiency.h"
#include "simulator/costs/layer_factors.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

FittedCalibration fit(std::string_view name) {
  return parse_fitted_calibration(*find_preset(calibration_presets(), name), std::string(name));
}

CostBasis built_in(const Cluster& cluster, const std::string& framework) {
  return cost_basis(cluster, framework_by_name(framework), {}, "mine.json");
}

TEST(FitTransfer, AModelIsAWordWithDigits) {
  EXPECT_EQ(device_model("NVIDIA H100 80GB HBM3"), "H100");
  EXPECT_EQ(device_model("NVIDIA A100-SXM4-80GB"), "A100");
  EXPECT_EQ(device_model("Some card"), "");
}

TEST(FitTransfer, ADeviceIsItsModelAndItsNumbers) {
  const Device h100 = preset_cluster("dgx-h100-80gb").device;
  Device same = h100;
  same.name = "NVIDIA H100 80GB HBM3";  // as nvidia-smi prints it
  same.memory = parse_bytes("80 GiB");
  same.peak_fp8.reset();
  EXPECT_EQ(device_difference(h100, same), "");
  for (const char* memory : {"80 GB", "81559 MiB"}) {
    same.memory = parse_bytes(memory);
    EXPECT_EQ(device_difference(h100, same), "") << memory;
  }
  Device other = h100;
  other.memory = parse_bytes("94 GB");
  EXPECT_EQ(device_difference(h100, other).rfind("memory 87.5 GiB", 0), 0u);
  other = h100;
  other.name = "NVIDIA H200";
  EXPECT_EQ(device_difference(h100, other).rfind("name \"NVIDIA H200\"", 0), 0u);
  other = h100;
  other.memory_bandwidth = parse_bytes_per_second("4800 GB/s");
  EXPECT_EQ(device_difference(h100, other), "memory bandwidth 4.80 TB/s, in the runs 3.35 TB/s");
  other = h100;
  other.peak_bf16 = parse_flops_per_second("756 TFLOP/s");
  EXPECT_EQ(device_difference(h100, other), "bf16 peak 756 TFLOP/s, in the runs 990 TFLOP/s");
}

TEST(FitTransfer, ItsOwnClusterTakesAllOfIt) {
  for (const Preset& known : calibration_presets()) {
    const FittedCalibration own = fit(known.name);
    Cluster its = preset_cluster(own.cluster);
    its.levels.back().bandwidth = own.levels.back().least_bandwidth;
    its.name = "another name";
    const TransferredFit found = transfer(own, its, framework_by_name(own.framework));
    EXPECT_EQ(found.fitted, own) << known.name;
    EXPECT_TRUE(found.other_levels.empty()) << known.name;
  }
}

TEST(FitTransfer, AnotherNetworkKeepsTypicalRatesAndWidensTheInterval) {
  const FittedCalibration own = fit("dgx-h100-80gb--megatron-lm");
  Cluster faster = preset_cluster("dgx-h100-80gb");
  faster.levels[1].bandwidth = parse_bytes_per_second("800 Gbit/s");
  const TransferredFit found = transfer(own, faster, framework_by_name("megatron-lm"));
  ASSERT_EQ(found.other_levels.size(), 1u);
  EXPECT_EQ(found.other_levels[0], "InfiniBand has 100 GB/s per device, in the runs 50.0 GB/s");
  EXPECT_EQ(found.fitted.within_node, own.within_node);
  const LayerShape shape{8192, 8192, 8192, 4, 2};
  const double before = std::log(1 + interval90_half_width(own, shape, true));
  const double after = std::log(1 + interval90_half_width(found.fitted, shape, true));
  EXPECT_NEAR(after, std::hypot(before, kOtherNetwork), 1e-12);
  Framework framework = framework_by_name("megatron-lm");
  const double stated = faster.efficiency->levels[1].bandwidth_fraction;
  apply(found.fitted, faster, framework);
  EXPECT_LT(faster.efficiency->levels[1].bandwidth_fraction, stated);
  EXPECT_EQ(faster.efficiency->levels[1].rests_on, RestsOn::typical);
  EXPECT_EQ(faster.efficiency->matmul.rests_on, RestsOn::runs);
  for (const FittedValue& value : own.values) {
    if (value.name != "matmul.peak_fraction") continue;
    EXPECT_DOUBLE_EQ(faster.efficiency->matmul.peak_fraction, value.value);
  }
}

TEST(FitTransfer, LevelsAreFoundByWhatTheyAre) {
  const FittedCalibration own = fit("dgx-h100-80gb--megatron-lm");
  Cluster deep = preset_cluster("dgx-h100-80gb");
  deep.levels.insert(deep.levels.begin() + 1,
                     {"rail", 64, parse_bytes_per_second("45 GB/s"), Seconds(5e-6)});
  deep.efficiency->levels.insert(deep.efficiency->levels.begin() + 1, {0.5, Seconds(1e-5), {}});
  Framework framework = framework_by_name("megatron-lm");
  const TransferredFit found = transfer(own, deep, framework);
  ASSERT_EQ(found.other_levels.size(), 1u);
  EXPECT_EQ(found.other_levels[0], "rail was not in the runs");
  apply(found.fitted, deep, framework);
  for (const FittedValue& value : own.values) {
    if (value.name != "levels.1.bandwidth_fraction") continue;
    EXPECT_DOUBLE_EQ(deep.efficiency->levels[2].bandwidth_fraction, value.value);
  }
}

/// Typical rates count as one more document than the fit's.
TEST(FitTransfer, OtherPeoplesRatesAreDrawnTowardsTypicalOnes) {
  const Cluster cluster = preset_cluster("dgx-h100-80gb");
  const Framework framework = framework_by_name("megatron-lm");
  const FittedCalibration whole = fit("dgx-h100-80gb--megatron-lm");
  const auto rate = [](const FittedCalibration& of, std::string_view name) {
    return std::ranges::find(of.values, name, &FittedValue::name)->value;
  };
  const double typical = rate(*typical_calibration(cluster, framework), "matmul.peak_fraction");
  const double own = framework.host.dispatch.op.value();
  for (const std::size_t documents : {1u, 3u}) {
    FittedCalibration moved = whole;
    std::ranges::find(moved.values, "dispatch_op", &FittedValue::name)->value = 2 * own;
    moved.sources = {"a@1, p", "a@2, q", "b, r", "c, s"};
    moved.sources.resize(documents + 1);
    moved.layers = {LayerPoint{{}, 1.5, 0.1, 4}};
    const double share = 1 / double(documents + 1);
    const auto between = [&](double from, double to) { return from * std::pow(to / from, share); };
    FittedCalibration before = moved;
    shrink(moved, cluster, framework);
    EXPECT_NEAR(rate(moved, "matmul.peak_fraction"),
                between(rate(before, "matmul.peak_fraction"), typical), 1e-9)
        << documents;
    EXPECT_NEAR(rate(moved, "dispatch_op"), own, 1e-12) << "of the host, which is another";
    EXPECT_NEAR(moved.layers[0].factor, between(1.5, 1), 1e-9);
  }
  FittedCalibration alone = whole;
  Framework plain = framework;
  plain.facts.typical_rates.value = false;
  shrink(alone, cluster, plain);
  EXPECT_EQ(alone, whole);
}

TEST(FitTransfer, NumbersOfNothingAreRefused) {
  FittedCalibration odd = fit("dgx-h100-80gb--megatron-lm");
  odd.values[0].name = "levels.7.fixed_time";
  EXPECT_THROW(transfer(odd, preset_cluster("dgx-h100-80gb"), framework_by_name("megatron-lm")),
               InputError);
}

TEST(CostBasis, OfSeveralFitsTheOneOfTheSameNetworkCounts) {
  EXPECT_EQ(built_in(preset_cluster("dgx-a100-80gb"), "megatron-lm-2021").source.name,
            "dgx-a100-80gb--megatron-lm-2021");
  EXPECT_EQ(built_in(preset_cluster("a100-80gb-800gbit"), "megatron-lm-2021").source.name,
            "a100-80gb-800gbit--megatron-lm-2021");
  Cluster between = preset_cluster("dgx-a100-80gb");
  between.name = "ours";
  between.levels[1].bandwidth = parse_bytes_per_second("110 Gbit/s");
  EXPECT_EQ(built_in(between, "megatron-lm-2021").source.name,
            "a100-80gb-800gbit--megatron-lm-2021");
}

TEST(CostBasis, ADeviceWithFitsOfOtherFrameworksNamesThem) {
  const CostBasis typical = built_in(preset_cluster("jean-zay-a100-80gb"), "megatron-lm");
  EXPECT_EQ(typical.source.name, kTypicalCalibration);
  EXPECT_NE(typical.source.words.find("--framework megatron-lm-2021"), std::string::npos)
      << typical.source.words;
  EXPECT_EQ(built_in(preset_cluster("jean-zay-a100-80gb"), "pytorch-fsdp").source.name,
            "dgx-a100-80gb--pytorch-fsdp");
}

TEST(CostBasis, AChangedDeviceIsRefusedAndSaysInWhat) {
  Cluster changed = preset_cluster("dgx-h100-80gb");
  changed.device.memory_bandwidth = parse_bytes_per_second("4800 GB/s");
  EXPECT_EQ(built_in(changed, "megatron-lm").source.name, kTypicalCalibration);
  try {
    cost_basis(changed, framework_by_name("megatron-lm"),
               read_calibration_choice({"dgx-h100-80gb--megatron-lm"}), "mine.json");
    ADD_FAILURE() << "accepted";
  } catch (const InputError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("/fitted/device"), std::string::npos) << text;
    EXPECT_NE(text.find("mine.json"), std::string::npos) << text;
    EXPECT_NE(text.find("memory bandwidth 4.80 TB/s"), std::string::npos) << text;
  }
}

TEST(CostBasis, WithoutAnythingKnownTheClustersNumbersStand) {
  Cluster cores = preset_cluster("dgx-h100-80gb");
  cores.device.kind = DeviceKind::cpu_core;
  const CostBasis basis = built_in(cores, "bundled");
  EXPECT_EQ(basis.source.name, "");
  EXPECT_EQ(basis.source.digest, "");
  EXPECT_EQ(basis.cluster, cores);
  EXPECT_EQ(basis.source.words, "no calibration, efficiency of the cluster file");
}

}  // namespace
}  // namespace plimsoll
