// Words for how a plan splits its job.
#include "reports/plan_words.h"

#include <gtest/gtest.h>

#include "models/framework/framework.h"
#include "tests/plan/example_plan.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

TEST(PlanWords, LayoutsAreInTheFieldsWords) {
  Plan plan = example_plan();
  plan.job.global_batch = 512;
  const Framework megatron = framework_by_name("megatron-lm");
  const auto layout = [&](const std::string& strategy) {
    return layout_text(plan.job, megatron, parse_strategy(strategy));
  };
  EXPECT_TRUE(states(layout("cp=8,sharding_stage=3"), {"CP 8", "DP 1", "ZeRO-3", "1 x 512"}));
  EXPECT_EQ(layout("cp=8,sharding_stage=0").find("ZeRO"), std::string::npos);
  EXPECT_TRUE(states(layout("dp=8"), {"TP 1", "PP 1", "DP 8", "1 x 64", "no recompute"}));
  EXPECT_TRUE(states(layout("pp=2,sharding_degree=8,recompute=modules,recompute_modules=norms"),
                     {"PP 2", "DP 8", "ZeRO-1", "1 x 64", "norms recomputed"}));
  EXPECT_TRUE(states(layout("mp=4,sequence_parallel=true,pp=4,virtual_stages=3,cp=2,dp=2,"
                            "sharding_degree=4,sharding_stage=3,micro_batch=2,recompute=full,"
                            "recompute_layers=2"),
                     {"TP 4 (sequence parallel)", "PP 4 (3 ", "CP 2", "DP 8 (ZeRO-3 over 4)",
                      "2 x 32", "full recompute", "2 layers"}));
  EXPECT_TRUE(states(
      layout("pp=2,layer_split=3+1,fp8=delayed,moment_type=bf16,offload_optimizer_percent=50"),
      {"PP 2", "3+1", "50 %", "host", "FP8", "delayed", "bf16"}));
  EXPECT_TRUE(states(layout("offload_activations_percent=40,offload_activations_layers=2"),
                     {"40 % of activations of 2 layers on the host"}));
  EXPECT_TRUE(states(layout("offload_activations_percent=100"), {"activations on the host"}));
  plan.job.experts.emplace();
  EXPECT_TRUE(states(layout("sharding_degree=8,ep=4,expert_dispatch=all_gather"),
                     {"EP 4", "all-gather", "DP 8 (ZeRO-1)", "1 x 64"}));
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
  EXPECT_TRUE(states(host_bound_text(prediction, job, framework, strategy),
                     {"launches", "larger micro-batches", "tensor parallelism", "CUDA graphs"}));
  framework.host.dispatch.graphs = Graphs::layers;
  strategy.mp = 1;
  const std::string split_less = host_bound_text(prediction, job, framework, strategy);
  EXPECT_TRUE(states(split_less, {"launches", "larger micro-batches"}));
  EXPECT_FALSE(states(split_less, {"graphs"}));
  EXPECT_FALSE(states(split_less, {"parallelism"}));
  strategy.micro_batch = 8;
  EXPECT_TRUE(host_bound_text(prediction, job, framework, strategy).ends_with("launches"));
}

}  // namespace
}  // namespace plimsoll
