// Step rules: the longest real steps are legal, and longer ones are refused with their length.
#include "passes/strategy/step_rules.h"

#include <gtest/gtest.h>

#include "models/presets/presets.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

Job long_job(std::int64_t layers, std::int64_t global_batch) {
  Job job = read_job("llama3-405b");
  job.layers = layers;
  job.global_batch = global_batch;
  return job;
}

TEST(StepRules, BundledJobsAreAllowedInTheSmallestMicroBatch) {
  for (const Preset& preset : job_presets()) {
    const Job job = read_job(std::string(preset.name));
    const Verdict verdict = step_is_bounded(job, Strategy(), 1);
    EXPECT_TRUE(verdict) << preset.name << ": " << verdict.reason();
  }
}

TEST(StepRules, ALongPipelineStepIsLegal) {
  const Strategy strategy = parse_strategy(
      "mp=8,pp=16,virtual_stages=8,embedding_as_layers=1,loss_as_layers=1,micro_batch=1");
  EXPECT_TRUE(legal(long_job(126, 8192), strategy, 128));
  EXPECT_FALSE(legal(long_job(126, 8192 + 16), strategy, 128));
}

TEST(StepRules, TheLimitCountsBlocksAndPrograms) {
  const Strategy strategy;
  EXPECT_TRUE(step_is_bounded(long_job(2, kMostLayerPasses / 4), strategy, 1));
  EXPECT_FALSE(step_is_bounded(long_job(2, kMostLayerPasses / 4 + 1), strategy, 1));
  EXPECT_FALSE(step_is_bounded(long_job(2, kMostLayerPasses / 4), strategy, 2));
  EXPECT_TRUE(step_is_bounded(long_job(2, kMostLayerPasses / 8), strategy, 2));
  // A layer, embedding and head.
  EXPECT_TRUE(states(step_is_bounded(long_job(1, 1 << 24), strategy, 4).reason(),
                     {"16777216 micro-batches", "3 layers", "4 ranks", "201326592", "1048576",
                      "larger micro_batch", "smaller global batch"}));
}

TEST(StepRules, OwnersOfAStageCount) {
  const std::int64_t most = kMostLayerPasses / 4 / 8 * 8;  // micro-batches of 8 ranks
  Strategy strategy = parse_strategy("sharding_degree=8,micro_batch=1");
  EXPECT_TRUE(legal(long_job(2, most * 8), strategy, 8));
  strategy.owners.sharding_owner = ShardingOwner::greedy;
  EXPECT_FALSE(legal(long_job(2, most * 8), strategy, 8));
  const Verdict verdict = legal(long_job(2, most), strategy, 8);
  EXPECT_TRUE(verdict) << verdict.reason();
}

}  // namespace
}  // namespace plimsoll
