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

std::string refusal_of_framework(const std::string& text) {
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
  expected.can.ranks.pipeline = {false, "our launcher"};
  expected.parallelism.overlap.grad_reduce = false;
  expected.sources.parallelism = "our flags";
  expected.memory.allocator.expandable_segments = true;
  expected.sources.allocator = "PYTORCH_CUDA_ALLOC_CONF";
  EXPECT_EQ(own, expected);
}

TEST(FrameworkJson, AChangedFrameworkIsWrittenAsItsDifferences) {
  for (const Framework& framework : all_frameworks()) {
    SCOPED_TRACE(framework.name);
    const auto without_sources = [](Json json) {
      json.erase("sources");
      json.erase("name");
      for (auto& [key, value] : json.at("can").items()) value.erase("source");
      return json;
    };
    const Json alike = parse_json(framework_text(framework, "a test"), "f");
    EXPECT_EQ(alike.size(), 3u) << alike;  // name, base, and whose fits hold
    EXPECT_EQ(alike.at("based_on"), framework.name);
    Framework changed = framework;
    changed.parallelism.overlap.grad_reduce = !changed.parallelism.overlap.grad_reduce;
    changed.memory.process.communicator = changed.memory.process.communicator + Bytes(3);
    changed.can.ranks.pipeline.value = !changed.can.ranks.pipeline.value;
    const std::string text = framework_text(changed, "a test");
    const Framework read = read_framework(written(text));
    EXPECT_EQ(read.name, framework.name + "-imported");
    EXPECT_EQ(without_sources(framework_json(read)), without_sources(framework_json(changed)));
    EXPECT_EQ(read.sources.parallelism, "a test");
    EXPECT_EQ(calibrated_as(read), calibrated_as(framework));
    EXPECT_EQ(parse_json(text, "f").size(), 6u) << text;
    // A name of its own is kept, and the framework whose fits hold is then the base.
    changed.name = "ours";
    changed.facts.calibrated_as.value = framework.name;
    EXPECT_EQ(parse_json(framework_text(changed, "a test"), "f").at("based_on"), framework.name);
    EXPECT_EQ(read_framework(written(framework_text(changed, "a test"))).name, "ours");
  }
}

TEST(FrameworkJson, OwnFrameworksAreSimulatedOnly) {
  const Framework own = read_framework(written(R"({"name": "mine", "based_on": "bundled"})"));
  EXPECT_FALSE(runs_here(own));
  EXPECT_EQ(read_framework("bundled"), bundled_framework());
}

TEST(FrameworkJson, RefusalsNameThePlace) {
  EXPECT_NE(refusal_of_framework(R"({"name": "mine", "based_on": "megatron"})")
                .find("/based_on: it is based"),
            std::string::npos);
  EXPECT_NE(refusal_of_framework(R"({"name": "megatron-lm", "based_on": "bundled"})")
                .find("/name: \"megatron-lm"),
            std::string::npos);
  EXPECT_NE(refusal_of_framework(R"({"name": "mine", "kernels": {"fused_bias": true}})")
                .find("/kernels/source"),
            std::string::npos);
  EXPECT_NE(
      refusal_of_framework(R"({"name": "mine", "waits": {"transfers_hold": "all", "source": "s"}})")
          .find("/waits/transfers_hold: found \"all\""),
      std::string::npos);
  EXPECT_NE(
      refusal_of_framework(R"({"name": "mine", "kernels": {"host_wait_s": 1, "source": "s"}})")
          .find("/kernels/host_wait_s: unknown key"),
      std::string::npos);
  EXPECT_THROW(read_framework("no-such-framework"), UsageError);
  EXPECT_THROW(read_framework("no/such/file.json"), InputError);
}

}  // namespace
}  // namespace plimsoll
