// 8-bit products and sequences shared between ranks are only simulated. Folded and unfolded ranks
// give equal results, bounds lie below, a search keeps to fixed choices, and the effects are as
// expected.
#include <gtest/gtest.h>

#include "planner/bounds/bounds.h"
#include "planner/search/search.h"
#include "predict/evaluate.h"
#include "tests/predict/fixtures.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

Job long_job() {
  Job job = nano_job();
  job.family = Family::llama;
  job.hidden = 512;
  job.heads = 8;
  job.kv_heads = 4;
  job.ffn_hidden = 1024;
  job.sequence = 8192;
  job.global_batch = 8;
  job.precision = DType::bf16;
  job.tied_embeddings = false;
  return job;
}

Cluster dgx() {
  return read_cluster(PLIMSOLL_SOURCE_DIR "/models/presets/clusters/dgx-h100-80gb.json");
}

constexpr const char* kStrategies[] = {
    "cp=4,dp=2",
    "cp=2,pp=2,mp=2,sequence_parallel=true",
    "cp=8,context_exchange=all_gather",
    "cp=2,mp=2,sharding_degree=4,fp8=delayed",
    "cp=4,context_exchange=all_to_all,sharding_degree=4",
    "cp=2,sharding_degree=4,sharding_stage=3,recompute=full",
    "mp=2,sequence_parallel=true,fp8=delayed,dp=4",
    "pp=2,virtual_stages=2,dp=2,fp8=current",
    "sharding_degree=8,sharding_stage=3,fp8=tensorwise",
    "cp=16,fp8=rowwise",
};

TEST(SimulatedOnly, FoldedIsAsUnfoldedAndBoundsStayBelow) {
  const Job job = long_job();
  const Cluster cluster = dgx();
  for (const char* text : kStrategies) {
    const Strategy strategy = parse_strategy(text);
    const std::int64_t devices = grid_of(strategy).world_size();
    const Framework framework = framework_by_name("pytorch-fsdp");
    ASSERT_TRUE(legal(job, strategy, devices)) << text;
    const Target target(job, CostModel(cluster, std::nullopt, framework), devices);
    const Footprint footprint = lay_out(target, strategy, Proof::order);
    const auto step = [&](Folding folding) {
      return predict(target, strategy, footprint, folding, Detail::none)
          .prediction.step_time.value();
    };
    const double folded = step(Folding::folded);
    EXPECT_EQ(folded, step(Folding::unfolded)) << text;
    const Bounds bounds(target);
    EXPECT_LE(bounds.bottleneck(strategy).seconds().value(), folded) << text;
    EXPECT_LE(bounds.actions(strategy).seconds().value(), folded) << text;
    const MemoryBound memory = bounds.memory(strategy);
    EXPECT_LE(bounds.persistent(strategy), memory.peak) << text;
    EXPECT_LE(memory.peak, largest(footprint.stages, &StagePrediction::peak)) << text;
    EXPECT_LE(memory.arena, largest(footprint.stages, &StagePrediction::arena)) << text;
  }
}

double seconds(const Job& job, const std::string& text) {
  const Strategy strategy = parse_strategy(text);
  const CostModel costs(dgx(), std::nullopt, framework_by_name("megatron-lm"));
  const Target target(job, costs, grid_of(strategy).world_size());
  return evaluate(target, strategy).prediction.step_time.value();
}

TEST(SimulatedOnly, LongSequencesGainFromMoreRanks) {
  Job job = long_job();
  job.sequence = 65536;
  job.global_batch = 1;
  const double one = seconds(job, "mp=1"), two = seconds(job, "cp=2"), four = seconds(job, "cp=4");
  EXPECT_LT(two, 0.62 * one);
  EXPECT_GT(two, 0.5 * one);
  EXPECT_LT(four, two);
}

TEST(SimulatedOnly, EightBitProductsAreFasterAndCastsAreNotFree) {
  Job job = long_job();
  job.hidden = 4096;
  job.heads = job.kv_heads = 32;
  job.ffn_hidden = 16384;
  job.sequence = 2048;
  const double wide = seconds(job, "micro_batch=2"),
               narrow = seconds(job, "micro_batch=2,fp8=delayed");
  EXPECT_LT(narrow, 0.8 * wide);
  EXPECT_GT(narrow, 0.5 * wide);
  EXPECT_LT(narrow, seconds(job, "micro_batch=2,fp8=tensorwise"));
}

TEST(SimulatedOnly, DevicesWithoutSuchProductsRefuse) {
  const Cluster cluster =
      read_cluster(PLIMSOLL_SOURCE_DIR "/models/presets/clusters/dgx-a100-80gb.json");
  const CostModel costs(cluster, std::nullopt, framework_by_name("megatron-lm"));
  try {
    evaluate(Target(long_job(), costs, 1), parse_strategy("fp8=delayed"));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_TRUE(states(error.what(), {"dgx-a100-80gb", "/device/peak", "fp32, bf16, fp16", "fp8"}));
  }
}

TEST(SimulatedOnly, ASearchSplitsSequencesOnlyWhereThatIsFixed) {
  const CostModel costs(dgx(), std::nullopt, framework_by_name("megatron-lm"));
  SearchRequest request{Target(long_job(), costs, 8)};
  request.inputs.cluster_digest = std::string(64, '0');
  request.constraints.fixed = {{"micro_batch", "1"}, {"grad_bucket_bytes", "4MiB"}};
  EXPECT_EQ(search(request).strategy.cp, 1);
  request.constraints.fixed.emplace_back("cp", "4");
  const Plan plan = search(request);
  EXPECT_EQ(plan.strategy.cp, 4);
  EXPECT_EQ(grid_of(plan.strategy).world_size(), 8);
  EXPECT_EQ(plan.strategy.precision.fp8, Fp8::none);
}

}  // namespace
}  // namespace plimsoll
