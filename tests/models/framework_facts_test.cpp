// Facts about frameworks: their files, and what is not in them.
#include "models/framework/framework_facts.h"

#include <gtest/gtest.h>

#include "models/presets/presets.h"

namespace plimsoll {
namespace {

TEST(FrameworkFacts, FilesAreOfFrameworksAndHaveSources) {
  EXPECT_FALSE(framework_presets().empty());
  for (const Preset& preset : framework_presets()) {
    EXPECT_EQ(framework_by_name(preset.name).name, preset.name);
    const FrameworkFacts& facts = framework_facts(preset.name);
    EXPECT_TRUE(!facts.typical_rates.source.empty() || !facts.calibrated_as.source.empty())
        << preset.name;
    if (facts.calibrated_as.value.empty()) continue;
    EXPECT_EQ(framework_by_name(facts.calibrated_as.value).name, facts.calibrated_as.value);
  }
}

TEST(FrameworkFacts, OthersHaveFitsOfTheirOwnAndTypicalRates) {
  const FrameworkFacts& facts = framework_facts("megatron-lm");
  EXPECT_TRUE(facts.typical_rates.value);
  EXPECT_EQ(facts.calibrated_as.value, "");
  EXPECT_EQ(calibrated_as(framework_by_name("megatron-lm")), "megatron-lm");
  EXPECT_EQ(calibrated_as(framework_by_name("torchtitan-async-tp")), "torchtitan");
  EXPECT_FALSE(framework_facts("megatron-lm-2021").typical_rates.value);
}

}  // namespace
}  // namespace plimsoll
