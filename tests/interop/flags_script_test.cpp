// Plans as scripts of another framework: reading a script gives the plan again.
#include "interop/exports/flags_script.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/interop/random_plans.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

const FlagTable& table() { return *flag_table_for("megatron"); }

TEST(FlagsScript, GivesThePlanAgain) {
  // Narrow moments beside fp32 masters are the one choice here that these flags cannot state.
  expect_plans_again("megatron", random_megatron_plan, "drawn.sh", {"main_parameter_type"},
                     megatron_choices());
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
  plan.strategy.gathers.overlap = false;  // nothing is gathered
  EXPECT_TRUE(flags_of(plan, table(), "plan.json").lost.empty());
  plan.strategy.optimizer.flatten = Flatten::none;
  const PlanFlags flags = flags_of(plan, table(), "plan.json");
  ASSERT_EQ(flags.lost.size(), 1u);
  EXPECT_EQ(flags.lost[0].key, "flatten");
  EXPECT_EQ(flags.lost[0].nearest, "fused");
  EXPECT_EQ(flags.strategy.optimizer.flatten, Flatten::fused);
}

/// Megatron-LM refuses --tp-comm-overlap where tokens are not split, and nothing is lost without
/// it.
TEST(FlagsScript, AnOverlapWithoutEffectIsNotStated) {
  Plan plan = small_plan();
  plan.framework.parallelism.overlap.async_tensor_parallel = true;
  const PlanFlags flags = flags_of(plan, table(), "plan.json");
  EXPECT_TRUE(flags.lost.empty());
  const std::string script = flags_script(plan, table(), flags);
  EXPECT_EQ(script.find("\n  --tp-comm-overlap"), script.npos);
  EXPECT_TRUE(states(script, {"# framework.async_tensor_parallel", "--sequence-parallel"}));
  plan.strategy.tokens.sequence_parallel = true;
  const PlanFlags split = flags_of(plan, table(), "plan.json");
  EXPECT_TRUE(split.lost.empty() && split.beside.empty());
  EXPECT_NE(flags_script(plan, table(), split).find("\n  --tp-comm-overlap\n"), script.npos);
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
    EXPECT_TRUE(states(error.what(), {"plan.json", "/job/family", "\"bert\"", "megatron"}));
  }
}

}  // namespace
}  // namespace plimsoll
