// Sentences about how a plan splits its job.
#include "reports/plan_words.h"

#include <gtest/gtest.h>

#include "models/framework/framework.h"
#include "tests/plan/example_plan.h"

namespace plimsoll {
namespace {

TEST(PlanWords, SayWhichRanksShareWhat) {
  Plan plan = example_plan();
  plan.job.layers = 8;
  plan.strategy = Strategy();
  EXPECT_EQ(split_sentences(plan), "Nothing is split: one device does it all.");
  plan.strategy.pp = 2;
  plan.strategy.virtual_stages = 2;
  plan.strategy.mp = 4;
  plan.strategy.sharding_degree = 8;
  plan.strategy.sharding_stage = 1;
  EXPECT_EQ(split_sentences(plan),
            "The layers run in 2 pipeline stages (layers: 4 each) of 2 chunks each, every layer is "
            "split over 4 ranks, the batch is shared by 8 replicas, the optimizer state is sharded "
            "over 8.");
}

TEST(PlanWords, SayWhereExpertsAre) {
  Plan plan = example_plan();
  plan.strategy = Strategy();
  plan.job.experts.emplace();
  plan.job.experts->count = 64;
  EXPECT_TRUE(split_sentences(plan).ends_with(" A rank has 64 of a layer's 64 experts."));
  plan.strategy.sharding_degree = 16;
  plan.strategy.ep = 8;
  EXPECT_TRUE(split_sentences(plan).ends_with(" A rank has 8 of a layer's 64 experts."));
  plan.strategy.etp = 2;
  EXPECT_TRUE(split_sentences(plan).ends_with(
      " A rank has 8 of a layer's 64 experts, each split over 2 ranks."));
}

TEST(PlanWords, LayoutsAreInTheFieldsWords) {
  Plan plan = example_plan();
  plan.job.global_batch = 512;
  const Framework megatron = framework_by_name("megatron-lm");
  const auto layout = [&](const std::string& strategy) {
    return layout_text(plan.job, megatron, parse_strategy(strategy));
  };
  EXPECT_EQ(layout("cp=8,sharding_stage=3"),
            "TP 1, PP 1, CP 8, DP 1 (ZeRO-3 over CP 8), micro-batch 1 x 512, no recompute");
  EXPECT_EQ(layout("cp=8,sharding_stage=0"),
            "TP 1, PP 1, CP 8, DP 1, micro-batch 1 x 512, no recompute");
  EXPECT_EQ(layout("dp=8"), "TP 1, PP 1, DP 8, micro-batch 1 x 64, no recompute");
  EXPECT_EQ(layout("pp=2,sharding_degree=8,recompute=modules,recompute_modules=norms"),
            "TP 1, PP 2, DP 8 (ZeRO-1), micro-batch 1 x 64, norms recomputed");
  EXPECT_EQ(layout("mp=4,sequence_parallel=true,pp=4,virtual_stages=3,cp=2,dp=2,sharding_degree=4,"
                   "sharding_stage=3,micro_batch=2,recompute=full,recompute_layers=2"),
            "TP 4 (sequence parallel), PP 4 (3 virtual stages), CP 2, DP 8 (ZeRO-3 over 4), "
            "micro-batch 2 x 32, full recompute of 2 layers per virtual stage");
  EXPECT_EQ(
      layout("pp=2,layer_split=3+1,fp8=delayed,moment_type=bf16,offload_optimizer_percent=50"),
      "TP 1, PP 2 (layers 3+1), DP 1, micro-batch 1 x 512, no recompute, 50 % of the optimizer "
      "on the host, FP8 with delayed scaling, moments in bf16");
  plan.job.experts.emplace();
  EXPECT_EQ(layout("sharding_degree=8,ep=4,expert_dispatch=all_gather"),
            "TP 1, PP 1, EP 4 (all-gather dispatch), DP 8 (ZeRO-1), "
            "micro-batch 1 x 64, no recompute");
}

TEST(PlanWords, ChangesLeaveOutWhatFollows) {
  const Plan plan = example_plan();
  const Framework megatron = framework_by_name("megatron-lm");
  const Strategy from = parse_strategy("pp=2,sharding_degree=8");
  const auto change = [&](const std::string& strategy) {
    return layout_change(plan.job, megatron, parse_strategy(strategy), from);
  };
  EXPECT_EQ(change("pp=2,sharding_degree=8,grad_bucket_bytes=64 MiB,send_slots=3"), "");
  EXPECT_EQ(change("pp=2,sharding_degree=4,cp=2,micro_batch=2"), "CP 2, micro-batch 2");
  EXPECT_EQ(change("mp=2,pp=2,sharding_degree=4"), "TP 2");
  EXPECT_EQ(change("pp=2,dp=8,recompute=full"), "no ZeRO, full recompute");
  EXPECT_EQ(change("mp=8,pp=2"), "TP 8");
}

TEST(PlanWords, SaysWhatHelpsAStepThatTheHostLimits) {
  Job job;
  job.global_batch = 8;
  Framework framework;
  Strategy strategy;
  strategy.mp = 2;
  Prediction prediction;
  prediction.step_time = Seconds(1);
  prediction.breakdown.dispatch = Seconds(0.09);
  EXPECT_EQ(host_bound_text(prediction, job, framework, strategy), "");
  prediction.breakdown.dispatch = Seconds(0.3);
  EXPECT_EQ(host_bound_text(prediction, job, framework, strategy),
            "kernels take less time than their launches; larger micro-batches, less tensor "
            "parallelism or CUDA graphs would help");
  framework.graphs = Graphs::layers;
  strategy.mp = 1;
  EXPECT_EQ(host_bound_text(prediction, job, framework, strategy),
            "kernels take less time than their launches; larger micro-batches would help");
  strategy.micro_batch = 8;
  EXPECT_EQ(host_bound_text(prediction, job, framework, strategy),
            "kernels take less time than their launches");
}

}  // namespace
}  // namespace plimsoll
