// Fitted calibrations: what they set, and their files.
#include "models/calibration/fitted_calibration.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

Cluster preset(std::string_view name) {
  for (const Preset& known : cluster_presets()) {
    if (known.name == name) return parse_cluster(known.text, std::string(name));
  }
  ADD_FAILURE() << name;
  return {};
}

FittedCalibration fitted_example() {
  FittedCalibration fitted;
  fitted.cluster = "dgx-a100-80gb";
  fitted.framework = "megatron-lm";
  fitted.device = preset("dgx-a100-80gb").device;
  fitted.levels = {{"NVLink", BytesPerSecond(3e11), BytesPerSecond(3e11), Seconds(2e-6)},
                   {"InfiniBand", BytesPerSecond(1e10), BytesPerSecond(2e10), Seconds(1e-5),
                    BytesPerSecond(5e9), true}};
  fitted.sources = {"arXiv 1, Table 5"};
  fitted.runs = 12;
  fitted.cross_validated_mean = 0.04;
  fitted.cross_validated_p90 = 0.09;
  fitted.unseen_sizes_mean = 0.05;
  fitted.within_node = {0.03, 1.7};
  fitted.across_nodes = {0.05, 1.9};
  fitted.assumed_recompute = {false, true};
  fitted.layers = {{{1024, 1024, 512, 2, 1}, 1.04, 0.02, 3}};
  fitted.values = {{"matmul.peak_fraction", 0.75, 0.82, 0.7, 0.8, true},
                   {"levels.1.fixed_time", 2e-5, 4.6e-5, 1e-5, 4e-5, true},
                   {"dispatch_op", 8e-6, 8e-6, 4e-6, 16e-6, false}};
  return fitted;
}

TEST(FittedCalibration, SetsTheNumbersThatItNames) {
  Cluster cluster = preset("dgx-a100-80gb");
  Framework framework = framework_by_name("megatron-lm");
  apply(fitted_example(), cluster, framework);
  EXPECT_DOUBLE_EQ(cluster.efficiency->matmul.peak_fraction, 0.75);
  EXPECT_DOUBLE_EQ(cluster.efficiency->levels[1].fixed_time.value(), 2e-5);
  EXPECT_DOUBLE_EQ(framework.host.dispatch.op.value(), 8e-6);
}

TEST(FittedCalibration, SaysWhatTheNumbersRestOn) {
  const auto applied = [](FittedCalibration fitted) {
    Cluster cluster = preset("dgx-a100-80gb");
    Framework framework = framework_by_name("megatron-lm");
    apply(fitted, cluster, framework);
    return *cluster.efficiency;
  };
  FittedCalibration fitted = fitted_example();
  Efficiency efficiency = applied(fitted);
  EXPECT_EQ(efficiency.matmul.rests_on, RestsOn::runs);
  EXPECT_EQ(efficiency.matmul.fp8_rests_on, RestsOn::cluster);
  EXPECT_EQ(efficiency.memory.rests_on, RestsOn::cluster);
  EXPECT_EQ(efficiency.levels[0].rests_on, RestsOn::cluster);
  EXPECT_EQ(efficiency.levels[1].rests_on, RestsOn::runs);
  fitted.values[0].determined = false;  // stays at its prior
  fitted.values[1].typical = true;
  efficiency = applied(fitted);
  EXPECT_EQ(efficiency.matmul.rests_on, RestsOn::cluster);
  EXPECT_EQ(efficiency.levels[1].rests_on, RestsOn::typical);
  fitted.values[0] = {"matmul.fp8_rate", 0.75, 0.82, 0.7, 0.8, true};
  efficiency = applied(fitted);
  EXPECT_EQ(efficiency.matmul.rests_on, RestsOn::cluster);
  EXPECT_EQ(efficiency.matmul.fp8_rests_on, RestsOn::runs);
}

TEST(FittedCalibration, EveryParameterReadsWhatItSets) {
  Cluster cluster = preset("dgx-a100-80gb");
  Framework framework = framework_by_name("megatron-lm");
  for (const FitParameter& parameter : fit_parameters(cluster)) {
    if (parameter.name == "matmul.fixed_time") {
      EXPECT_LT(parameter.most, 1e-4);  // of a kernel without work
    }
    const double value = parameter.least * 1.5;
    parameter.set(cluster, framework, parameter.level, value);
    EXPECT_DOUBLE_EQ(parameter.get(cluster, framework, parameter.level), value) << parameter.name;
    EXPECT_GT(parameter.most, parameter.least) << parameter.name;
  }
}

TEST(FittedCalibration, FilesReadBackAsWritten) {
  const std::string text = fitted_calibration_text(fitted_example());
  EXPECT_TRUE(is_fitted_calibration(text, "f.json"));
  EXPECT_FALSE(is_fitted_calibration("{}", "f.json"));
  EXPECT_EQ(parse_fitted_calibration(text, "f.json"), fitted_example());
}

TEST(FittedCalibration, WhatIsNotKnownIsLeftOut) {
  FittedCalibration fitted = fitted_example();
  fitted.unseen_sizes_mean.reset();
  fitted.assumed_recompute = {};
  const std::string text = fitted_calibration_text(fitted);
  EXPECT_EQ(text.find("unseen_sizes_mean"), std::string::npos);
  EXPECT_EQ(parse_fitted_calibration(text, "f.json"), fitted);
}

TEST(FittedCalibration, BadFilesAreRefusedWithTheirPlace) {
  const auto refused = [](std::string from, std::string to, const std::string& place) {
    std::string text = fitted_calibration_text(fitted_example());
    text.replace(text.find(from), from.size(), to);
    try {
      parse_fitted_calibration(text, "f.json");
      ADD_FAILURE() << "accepted: " << to;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(place), std::string::npos) << error.what();
    }
  };
  refused("\"runs\": 12", "\"runs\": -1", "/fitted/runs");
  refused("\"low\": 0.7", "\"low\": 0.9", "/fitted/values/0/low");
  refused("\"hidden\": 512", "\"hidden\": 0", "/fitted/layers/0/hidden");
  refused("\"full\"", "\"some\"", "/fitted/assumed_recompute/across_nodes");
  refused("\"cluster\"", "\"clusters\"", "/fitted");
  refused("\"memory_bytes\": 8", "\"memory_bytes\": -8", "/fitted/device/memory_bytes");
  refused("\"most_bandwidth_bytes_per_s\": 2", "\"most_bandwidth_bytes_per_s\": -2",
          "/fitted/levels/1/most_bandwidth_bytes_per_s");
}

TEST(FittedCalibration, UnknownParametersAreRefused) {
  Cluster cluster = preset("dgx-a100-80gb");
  Framework framework = framework_by_name("megatron-lm");
  FittedCalibration fitted = fitted_example();
  fitted.values[0].name = "levels.7.fixed_time";
  EXPECT_THROW(apply(fitted, cluster, framework), InputError);
}

TEST(FittedCalibration, BuiltInOnesAreOfPresets) {
  EXPECT_FALSE(calibration_presets().empty());
  for (const Preset& known : calibration_presets()) {
    const FittedCalibration fitted = parse_fitted_calibration(known.text, std::string(known.name));
    EXPECT_EQ(fitted.cluster + "--" + fitted.framework, known.name);
    EXPECT_FALSE(fitted.sources.empty()) << known.name;
    Cluster cluster = preset(fitted.cluster);
    EXPECT_EQ(fitted.device, cluster.device) << known.name;
    ASSERT_EQ(fitted.levels.size(), cluster.levels.size()) << known.name;
    Framework framework = framework_by_name(fitted.framework);
    apply(fitted, cluster, framework);
  }
}

}  // namespace
}  // namespace plimsoll
