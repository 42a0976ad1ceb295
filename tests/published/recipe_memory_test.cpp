// NVIDIA's recipes fit in 16 and in 8 bits, as their published runs did.
#include <gtest/gtest.h>

#include "published/validate.h"
#include "tests/published/published_rows.h"

namespace plimsoll {
namespace {

/// Llama 3 70B of Megatron Bridge's tables: 64 H100, FP8, TP 4, PP 8, VP 5.
Json llama70b() {
  Json run = plain_row();
  run["id"] = "test/70b";
  run["hardware"]["gpu"] = "H100-80GB SXM";
  run["hardware"]["gpus"] = 64;
  run["hardware"]["gpus_per_node"] = 8;
  run["model"]["name"] = "llama3-70b";
  run["model"]["hidden"] = 8192;
  run["model"]["layers"] = 80;
  run["model"]["heads"] = 64;
  run["model"]["kv_heads"] = 8;
  run["model"]["ffn_hidden"] = 28672;
  run["model"]["vocab"] = 128256;
  run["model"]["seq_len"] = 8192;
  run["parallel"]["tp"] = 4;
  run["parallel"]["pp"] = 8;
  run["parallel"]["dp"] = 2;
  run["parallel"]["vpp"] = 5;
  run["batch"]["micro"] = 1;
  run["batch"]["global"] = 128;
  run["precision"] = "fp8";
  run["recompute"] = "unknown";
  run["attention"] = "flash";
  run["framework"] = "megatron-bridge";
  return run;
}

Strategy strategy_of(const Json& run) {
  const PublishedTarget target = target_of(run);
  EXPECT_EQ(target.missing, "");
  return target.strategies.at(0);
}

TEST(RecipeMemory, GradientsAndWeightsAreAsNarrowAsTheRecipesHaveThem) {
  Json run = llama70b();
  for (const char* framework : {"megatron-bridge", "nemo"}) {
    run["framework"] = framework;
    run["precision"] = "fp8";
    EXPECT_EQ(strategy_of(run).precision.gradients, GradientType::computed);
    EXPECT_TRUE(strategy_of(run).precision.fp8_parameters);
    run["precision"] = "bf16";
    EXPECT_EQ(strategy_of(run).precision.gradients, GradientType::computed);
    EXPECT_FALSE(strategy_of(run).precision.fp8_parameters);
  }
  run["reduce_dtype"] = "fp32";
  EXPECT_EQ(strategy_of(run).precision.gradients, GradientType::f32) << "the row says otherwise";
  run["reduce_dtype"] = nullptr;
  run["framework"] = "megatron-lm";
  EXPECT_EQ(strategy_of(run).precision.gradients, GradientType::f32) << "its own default";
}

TEST(RecipeMemory, TheRunOfSeventyBillionParametersFits) {
  const PublishedTarget target = target_of(llama70b());
  const RunPrediction predicted = predict_published(target);
  EXPECT_EQ(predicted.fits, Fits::yes);
  PublishedTarget wide = target;
  for (Strategy& strategy : wide.strategies) {
    strategy.precision.gradients = GradientType::f32;
    strategy.precision.fp8_parameters = false;
  }
  const auto device = std::size_t(MemoryKind::device);
  EXPECT_GT(predict_published(wide).memory[device], predicted.memory[device] + Bytes(7LL << 30))
      << "as it would be without the recipe's types";
}

}  // namespace
}  // namespace plimsoll
