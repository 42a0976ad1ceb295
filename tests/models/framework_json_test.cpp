// Framework files: the built-in ones, what a file may state, and what is refused.
#include "models/framework/framework_json.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

/// A framework file in the test's own folder.
std::string written(const std::string& text) {
  const auto path = std::filesystem::path(testing::TempDir()) / "own-framework.json";
  std::ofstream(path) << text;
  return path.string();
}

std::string refusal(const std::string& text) {
  try {
    read_framework(written(text));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(FrameworkJson, BuiltInFilesAreNamedAsTheirFrameworks) {
  EXPECT_EQ(framework_presets().size(), all_frameworks().size());
  for (const Preset& preset : framework_presets()) {
    EXPECT_NE(find_framework(preset.name), nullptr) << preset.name;
  }
}

TEST(FrameworkJson, WholeFrameworksReadBackTheSame) {
  for (const Framework& framework : all_frameworks()) {
    const Json json = framework_json(framework);
    EXPECT_EQ(framework_from(JsonObject(json, "f")), framework) << framework.name;
  }
}

TEST(FrameworkJson, FactsHaveSources) {
  for (const Framework& framework : all_frameworks()) {
    const FrameworkFacts& facts = framework.facts;
    if (facts.calibrated_as.value.empty()) continue;
    EXPECT_FALSE(facts.calibrated_as.source.empty()) << framework.name;
    EXPECT_NE(find_framework(facts.calibrated_as.value), nullptr) << framework.name;
  }
  EXPECT_TRUE(framework_by_name("megatron-lm").facts.typical_rates.value);
  EXPECT_FALSE(framework_by_name("megatron-lm-2021").facts.typical_rates.value);
  EXPECT_TRUE(framework_by_name("megatron-deepspeed").facts.typical_rates.value);
  EXPECT_EQ(calibrated_as(framework_by_name("megatron-lm")), "megatron-lm");
  EXPECT_EQ(calibrated_as(framework_by_name("torchtitan-async-tp")), "torchtitan");
  EXPECT_FALSE(runs_here(framework_by_name("megatron-lm")));
  EXPECT_TRUE(runs_here(bundled_cuda_framework()));
}

TEST(FrameworkJson, AFileStatesWhatDiffersFromItsBase) {
  const Framework base = framework_by_name("megatron-lm");
  const Framework own = read_framework(written(R"({
    "name": "mine", "based_on": "megatron-lm",
    "can": {"pipeline": {"value": false, "source": "our launcher"}},
    "parallelism": {"overlap_grad_reduce": false, "source": "our flags"},
    "allocator": {"expandable_segments": true, "source": "PYTORCH_CUDA_ALLOC_CONF"}})"));
  Framework expected = base;
  expected.name = "mine";
  expected.can.pipeline = {false, "our launcher"};
  expected.overlap_grad_reduce = false;
  expected.sources.parallelism = "our flags";
  expected.allocator.expandable_segments = true;
  expected.sources.allocator = "PYTORCH_CUDA_ALLOC_CONF";
  EXPECT_EQ(own, expected);
}

TEST(FrameworkJson, OwnFrameworksAreSimulatedOnly) {
  const Framework own = read_framework(written(R"({"name": "mine", "based_on": "bundled"})"));
  EXPECT_FALSE(runs_here(own));
  EXPECT_EQ(read_framework("bundled"), bundled_framework());
}

TEST(FrameworkJson, RefusalsNameThePlace) {
  EXPECT_NE(refusal(R"({"name": "mine", "based_on": "megatron"})").find("/based_on: it is based"),
            std::string::npos);
  EXPECT_NE(
      refusal(R"({"name": "megatron-lm", "based_on": "bundled"})").find("/name: \"megatron-lm"),
      std::string::npos);
  EXPECT_NE(refusal(R"({"name": "mine", "kernels": {"fused_bias": true}})").find("/kernels/source"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"name": "mine", "waits": {"transfers_hold": "all", "source": "s"}})")
                .find("/waits/transfers_hold: found \"all\""),
            std::string::npos);
  EXPECT_NE(refusal(R"({"name": "mine", "kernels": {"host_wait_s": 1, "source": "s"}})")
                .find("/kernels/host_wait_s: unknown key"),
            std::string::npos);
  EXPECT_THROW(read_framework("no-such-framework"), UsageError);
  EXPECT_THROW(read_framework("no/such/file.json"), InputError);
}

}  // namespace
}  // namespace plimsoll
