// Plans as scripts of another framework: reading a script gives the plan again.
#include "planner/export/flags_script.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "imports/megatron_lm.h"
#include "passes/strategy/strategy_fields.h"
#include "tests/planner/random_plans.h"
#include "tests/runtime/random_values.h"

namespace plimsoll {
namespace {

const FlagTable& table() { return *flag_table_for("megatron"); }

TEST(FlagsScript, GivesThePlanAgain) {
  Random random(20261124);
  std::map<std::string, int> seen;
  for (int i = 0; i < 10'000; ++i) {
    const Plan plan = random_megatron_plan(random);
    const PlanFlags flags = flags_of(plan, table(), "plan.json");
    const std::string script = flags_script(plan, table(), flags);
    // Narrow moments beside fp32 masters are the one choice here that these flags cannot state.
    const Imported read = read_megatron_lm(script, "drawn.sh");
    ASSERT_EQ(difference(plan, flags, read, {"main_parameter_type"}), "") << i << "\n" << script;
    ++seen[plan.framework.name];
    ++seen[flags.lost.empty() ? "all stated" : "lost"];
    for (const StrategyField& field : shown_fields(plan.strategy)) {
      if (!always_shown(field.key)) ++seen[fmt::format("{}={}", field.key, field.value)];
    }
    if (!plan.strategy.layer_split.empty()) ++seen["layer_split"];
    if (plan.strategy.sharding_stage == 3) ++seen["sharding_stage=3"];
  }
  for (const char* choice : {"megatron-lm",
                             "megatron-fsdp",
                             "megatron-core-deterministic",
                             "all stated",
                             "lost",
                             "layer_split",
                             "sharding_stage=3",
                             "cp=2",
                             "context_exchange=all_to_all",
                             "virtual_stages=3",
                             "embedding_as_layers=2",
                             "rank_order=mp-cp-pp-sharding-dp",
                             "sequence_parallel=true",
                             "recompute_layers=2",
                             "fp8=current",
                             "fp8_parameters=true",
                             "gradient_type=computed",
                             "main_gradient_type=computed",
                             "main_parameter_type=f16",
                             "main_parameter_type=remainder",
                             "moment_type=fp8",
                             "overlap_grad_reduce=false",
                             "overlap_param_gather=false"}) {
    EXPECT_GT(seen[choice], 20) << choice;
  }
}

Plan small_plan() {
  Plan plan;
  plan.job = read_job("gpt-mini");
  plan.stated_vocabulary = plan.job.vocab;
  plan.framework = framework_by_name("megatron-lm");
  plan.job.vocab = padded_vocabulary(plan.job.vocab, plan.framework, 1);
  plan.strategy = parse_strategy("mp=2,dp=2");
  plan.devices = 4;
  plan.devices_per_node = 8;
  return plan;
}

TEST(FlagsScript, NamesWhatFlagsCannotState) {
  Plan plan = small_plan();
  EXPECT_TRUE(flags_of(plan, table(), "plan.json").lost.empty());
  plan.strategy.overlap_param_gather = false;  // nothing is gathered
  EXPECT_TRUE(flags_of(plan, table(), "plan.json").lost.empty());
  plan.strategy.flatten = Flatten::none;
  const PlanFlags flags = flags_of(plan, table(), "plan.json");
  ASSERT_EQ(flags.lost.size(), 1u);
  EXPECT_EQ(flags.lost[0].key, "flatten");
  EXPECT_EQ(flags.lost[0].nearest, "fused");
  EXPECT_EQ(flags.strategy.flatten, Flatten::fused);
}

TEST(FlagsScript, NamesCannotBecomeCommands) {
  Plan plan = small_plan();
  plan.job.name = "a'b\"$(touch x)`id`; rm -rf y";
  const std::string script = flags_script(plan, table(), flags_of(plan, table(), "plan.json"));
  EXPECT_EQ(script.find("touch x"), std::string::npos);
  EXPECT_EQ(script.find("rm -rf"), std::string::npos);
  EXPECT_NE(script.find("\n# a_b___touch_x__id___rm_-rf_y: mp=2"), std::string::npos) << script;
}

TEST(FlagsScript, JobsThatFlagsCannotStateAreRefused) {
  Plan plan = small_plan();
  plan.job = read_job("bert-large");
  plan.stated_vocabulary = plan.job.vocab;
  try {
    flags_of(plan, table(), "plan.json");
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_STREQ(
        error.what(),
        "plan.json: at /job/family: found \"bert\"; the flags of megatron state no such job");
  }
}

}  // namespace
}  // namespace plimsoll
