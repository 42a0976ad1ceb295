// Rates typical of training, for clusters and frameworks without a fit.
#include <gtest/gtest.h>

#include <cmath>

#include "models/presets/presets.h"
#include "predict/default_efficiency.h"
#include "published/published_target.h"
#include "published/validate.h"
#include "tests/predict/fixtures.h"
#include "tests/published/published_rows.h"

namespace plimsoll {
namespace {

TEST(TypicalCalibration, RatesAreBelowWhatKernelsReachAlone) {
  Cluster a100 = preset_cluster("dgx-a100-80gb");
  Framework framework = framework_by_name("megatron-lm");
  const auto typical = typical_calibration(a100, framework);
  ASSERT_TRUE(typical.has_value());
  const double before = a100.efficiency->matmul.peak_fraction;
  for (const FittedValue& value : typical->values) {
    EXPECT_GT(value.value, 0.5 * value.prior) << value.name;
    // Fits found the stated rates for links within a node, and less for other links. They found the
    // stated rates for attention, too.
    const bool as_stated =
        value.name.starts_with("levels.") || value.name.starts_with("attention_");
    EXPECT_LT(value.value, as_stated ? 1.1 * value.prior : value.prior) << value.name;
    EXPECT_LT(value.low, value.value) << value.name;
    EXPECT_GT(value.high, value.value) << value.name;
  }
  EXPECT_EQ(typical->values.size(), 6u);
  EXPECT_EQ(parse_fitted_calibration(fitted_calibration_text(*typical), "typical"), *typical);
  apply(*typical, a100, framework);
  EXPECT_NEAR(a100.efficiency->matmul.peak_fraction / before, 0.88, 0.04);
  EXPECT_EQ(framework, framework_by_name("megatron-lm"));
  EXPECT_EQ(a100.efficiency->matmul.rests_on, RestsOn::typical);
  for (const LevelEfficiency& level : a100.efficiency->levels)
    EXPECT_EQ(level.rests_on, RestsOn::typical);
}

TEST(TypicalCalibration, ADocumentThatIsLeftOutLeavesTheRestOfItsFits) {
  const Cluster h200 = preset_cluster("hgx-h200");
  const Framework framework = framework_by_name("paddle-2.2");
  const auto of = [&](std::string_view document) {
    return typical_calibration(h200, framework, document)->values;
  };
  // The fit of H100 has runs of three documents; without one of them the other two stay.
  EXPECT_NE(of("github:NVIDIA/NeMo"), of(""));
  EXPECT_NE(of("github:NVIDIA/NeMo"), of("github:NVIDIA/dgxc-benchmarking"));
  EXPECT_EQ(of("github:nobody/knows"), of(""));
}

TEST(TypicalCalibration, OnlyWhereFitsSaySomething) {
  const Cluster a100 = preset_cluster("dgx-a100-80gb");
  for (const char* name : {"megatron-lm-2021", "megatron-lm-2022", "megatron-deepspeed-2020"}) {
    EXPECT_FALSE(typical_calibration(a100, framework_by_name(name))) << name;
  }
  for (const char* name : {"torchtitan-compiled", "paddle-2.2", "bundled-cuda"}) {
    EXPECT_TRUE(typical_calibration(a100, framework_by_name(name))) << name;
  }
  Cluster plain = a100;
  plain.efficiency.reset();
  EXPECT_FALSE(typical_calibration(plain, framework_by_name("megatron-lm")));
}

TEST(TypicalCalibration, ANetworkAcrossNodesIsOneWhereverItStands) {
  Cluster single = preset_cluster("dgx-a100-80gb");
  const Framework framework = framework_by_name("megatron-lm");
  const auto both = typical_calibration(single, framework);
  single.devices_per_node = 1;
  single.levels.erase(single.levels.begin());
  single.efficiency->levels.erase(single.efficiency->levels.begin());
  const auto alone = typical_calibration(single, framework);
  ASSERT_TRUE(both && alone);
  EXPECT_EQ(alone->values.back().name, "levels.0.bandwidth_fraction");
  EXPECT_EQ(alone->values.back().value, both->values.back().value);
}

TEST(TypicalCalibration, PublishedRunsWithoutAFitTakeItAndSayHowSureItIs) {
  Json run = plain_row();
  run["hardware"]["gpu"] = "H200-141GB";
  run["hardware"]["gpus"] = 8;
  run["model"]["name"] = "Llama 2 7b";
  run["model"]["hidden"] = 4096;
  run["model"]["layers"] = 4;
  run["model"]["heads"] = 32;
  run["model"]["ffn_hidden"] = 11008;
  run["model"]["seq_len"] = 4096;
  run["model"]["vocab"] = nullptr;  // that of the public model
  run["parallel"] = {{"dp", 8}};
  run["batch"]["micro"] = 1;
  run["batch"]["global"] = 16;
  run["precision"] = "bf16";
  run["recompute"] = "none";
  run["attention"] = "flash";
  run["framework"] = "pytorch-fsdp";
  run["parallel"]["zero_stage"] = 3;
  const PublishedTarget with = target_of(run);
  ASSERT_EQ(with.missing, "");
  ASSERT_TRUE(with.fitted.has_value());
  EXPECT_EQ(with.fitted->runs, 0);
  const RunPrediction typical = predict_published(with);
  const RunPrediction alone = predict_published(target_of(run, own_numbers()));
  EXPECT_GT(typical.step_time, 1.05 * alone.step_time);
  EXPECT_LT(typical.step_time, 1.5 * alone.step_time);
  // No fit is of an H200.
  EXPECT_TRUE(with.fitted->unfamiliar_device);
  EXPECT_FALSE(with.fitted->unfamiliar_framework);
  EXPECT_NEAR(typical.interval.half_width(), unseen_source(typical.open).half_width(), 1e-9);
  EXPECT_GE(typical.interval.logarithm(),
            (1 - 1e-9) * source_spread(TimeBasis::typical).half_width);
}

}  // namespace
}  // namespace plimsoll
