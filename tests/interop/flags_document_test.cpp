// Plans as configuration files of other frameworks: reading a file gives the plan again.
#include <gtest/gtest.h>

#include "base/error.h"
#include "interop/exports/flags_script.h"
#include "tests/interop/random_plans.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

TEST(FlagsDocument, TorchtitanGivesThePlanAgain) {
  // Without shards, tensor and pipeline ranks compute in float32 (maybe_enable_amp).
  expect_plans_again(
      "torchtitan", random_titan_plan, "drawn.toml", {"precision"},
      {"torchtitan", "torchtitan-compiled", "torchtitan-async-tp", "all stated", "lost",
       "layer_split", "sharding_stage=0", "sharding_stage=1", "sharding_stage=2",
       "sharding_stage=3", "schedule=gpipe", "cp=2", "context_exchange=all_gather",
       "embedding_as_layers=2", "recompute=per_op", "fp8=rowwise", "fp8=tensorwise"});
}

/// Options have no list of the layers of stages, and FP8 is what the named configuration says.
Plan titan_plan_of_options(Random& random) {
  while (true) {
    Plan plan = random_titan_plan(random);
    const Fp8 named = plan.job.layers == 126 ? Fp8::tensorwise : Fp8::none;
    if (plan.strategy.pipeline.layer_split.empty() && plan.strategy.precision.fp8 == named)
      return plan;
  }
}

TEST(FlagsDocument, OptionsOfTorchtitanGiveThePlanAgain) {
  expect_plans_again("torchtitan", titan_plan_of_options, "drawn.sh", {"precision"},
                     {"torchtitan", "torchtitan-compiled", "torchtitan-async-tp", "all stated",
                      "lost", "sharding_stage=0", "sharding_stage=1", "sharding_stage=2",
                      "sharding_stage=3", "schedule=gpipe", "cp=2", "context_exchange=all_gather",
                      "embedding_as_layers=2", "recompute=per_op", "fp8=tensorwise"},
                     "2026-02-23");
}

TEST(FlagsDocument, OptionsOfTorchtitanLoseFp8AndListedStages) {
  Plan plan;
  plan.framework = framework_by_name("torchtitan-compiled");
  plan.job = read_job("llama3-8b");
  plan.job.dropout = 0;
  plan.stated_vocabulary = plan.job.vocab;
  plan.devices = plan.devices_per_node = 8;
  plan.strategy =
      parse_strategy("pp=2,sharding_degree=4,sharding_stage=1,layer_split=10+22,fp8=rowwise");
  const PlanFlags flags = flags_of(plan, *flag_table_for("torchtitan", "2026-02-23"), "plan.json");
  std::vector<std::string> lost;
  for (const LostChoice& one : flags.lost) lost.push_back(one.key + "=" + one.nearest);
  EXPECT_EQ(lost, (std::vector<std::string>{"embedding_as_layers=1", "fp8=none", "layer_split=even",
                                            "loss_as_layers=1"}));
}

TEST(FlagsDocument, BucketsOfTheFrameworkAreNotLost) {
  Plan plan;
  plan.framework = framework_by_name("torchtitan");
  plan.job = read_job("llama3-8b");
  plan.job.dropout = 0;
  plan.stated_vocabulary = plan.job.vocab;
  plan.devices = plan.devices_per_node = 8;
  plan.strategy = parse_strategy("sharding_degree=8,sharding_stage=2,grad_bucket_bytes=64MiB");
  const FlagTable& table = *flag_table_for("torchtitan");
  const PlanFlags flags = flags_of(plan, table, "plan.json");
  EXPECT_TRUE(flags.lost.empty());
  EXPECT_EQ(flags.strategy, plan.strategy);
  const std::string text = flags_document(plan, table, flags);
  EXPECT_TRUE(states(text, {"# grad_bucket_bytes", "64MiB"}));
}

TEST(FlagsDocument, ModelsWithoutANameAreRefused) {
  Random random(3);
  Plan plan = random_titan_plan(random);
  plan.job.layers += 8;
  plan.strategy.pipeline.layer_split.clear();
  plan.strategy.recomputed.list.clear();
  try {
    flags_of(plan, *flag_table_for("torchtitan"), "plan.json");
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_TRUE(states(error.what(), {"plan.json", "/job", "torchtitan", "llama3 8B, llama3 70B",
                                      "qwen3 235B-A22B"}));
  }
}

TEST(FlagsDocument, ModelsOfTodayHaveNames) {
  const FlagTable& table = *flag_table_for("torchtitan");
  for (const auto& [preset, flavor] : {std::pair("llama3-70b", "70B"), std::pair("qwen3-8b", "8B"),
                                       std::pair("qwen3-32b", "32B")}) {
    Plan plan;
    plan.framework = framework_by_name("torchtitan");
    plan.job = read_job(preset);
    plan.stated_vocabulary = plan.job.vocab;
    plan.devices = plan.devices_per_node = 8;
    plan.strategy = parse_strategy("sharding_degree=8,sharding_stage=2");
    const std::string text = flags_document(plan, table, flags_of(plan, table, "plan.json"));
    EXPECT_NE(text.find(std::string("flavor = \"") + flavor + "\""), text.npos) << text;
  }
}

TEST(FlagsDocument, MegatronBridgeGivesThePlanAgain) {
  // Narrow moments beside fp32 masters are the one choice here that these settings cannot state.
  expect_plans_again("megatron-bridge", random_megatron_plan, "drawn.yaml", {"main_parameter_type"},
                     megatron_choices());
}

}  // namespace
}  // namespace plimsoll
