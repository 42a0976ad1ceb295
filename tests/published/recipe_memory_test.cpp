// What NVIDIA's recipes keep in 16 and in 8 bits: their published runs fit.
#include <gtest/gtest.h>

#include "published/validate.h"

namespace plimsoll {
namespace {

/// Llama 3 70B of Megatron Bridge's tables: 64 H100, FP8, TP 4, PP 8, VP 5.
PublishedRun llama70b() {
  PublishedRun run;
  run.id = "test/70b";
  run.gpu = "H100-80GB SXM";
  run.gpus = 64;
  run.gpus_per_node = 8;
  run.model = "llama3-70b";
  run.hidden = 8192;
  run.layers = 80;
  run.heads = 64;
  run.kv_heads = 8;
  run.ffn_hidden = 28672;
  run.vocab = 128256;
  run.sequence = 8192;
  run.tp = 4;
  run.pp = 8;
  run.dp = 2;
  run.virtual_stages = 5;
  run.micro_batch = 1;
  run.global_batch = 128;
  run.precision = "fp8";
  run.recompute = "unknown";
  run.attention = "flash";
  run.framework = "megatron-bridge";
  return run;
}

Strategy strategy_of(const PublishedRun& run) {
  const PublishedTarget target = published_target(run);
  EXPECT_EQ(target.missing, "");
  return target.strategies.at(0);
}

TEST(RecipeMemory, GradientsAndWeightsAreAsNarrowAsTheRecipesHaveThem) {
  PublishedRun run = llama70b();
  for (const char* framework : {"megatron-bridge", "nemo"}) {
    run.framework = framework;
    run.precision = "fp8";
    EXPECT_EQ(strategy_of(run).gradient_type, GradientType::computed);
    EXPECT_TRUE(strategy_of(run).fp8_parameters);
    run.precision = "bf16";
    EXPECT_EQ(strategy_of(run).gradient_type, GradientType::computed);
    EXPECT_FALSE(strategy_of(run).fp8_parameters);
  }
  run.reduce_dtype = "fp32";
  EXPECT_EQ(strategy_of(run).gradient_type, GradientType::f32) << "the row says otherwise";
  run.reduce_dtype.clear();
  run.framework = "megatron-lm";
  EXPECT_EQ(strategy_of(run).gradient_type, GradientType::f32) << "its own default";
}

TEST(RecipeMemory, TheRunOfSeventyBillionParametersFits) {
  const PublishedTarget target = published_target(llama70b());
  const RunPrediction predicted = predict_published(target);
  EXPECT_TRUE(predicted.fits);
  PublishedTarget wide = target;
  for (Strategy& strategy : wide.strategies) {
    strategy.gradient_type = GradientType::f32;
    strategy.fp8_parameters = false;
  }
  const auto device = std::size_t(MemoryKind::device);
  EXPECT_GT(predict_published(wide).memory[device], predicted.memory[device] + Bytes(7LL << 30))
      << "as it would be without the recipe's types";
}

}  // namespace
}  // namespace plimsoll
