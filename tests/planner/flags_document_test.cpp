// Plans as configuration files of other frameworks: reading a file gives the plan again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "base/error.h"
#include "imports/framework_document.h"
#include "passes/strategy/strategy_fields.h"
#include "planner/export/flags_script.h"
#include "tests/planner/random_plans.h"

namespace plimsoll {
namespace {

struct Counts {
  std::map<std::string, int> seen;
  void count(const Plan& plan, const PlanFlags& flags) {
    ++seen[plan.framework.name];
    ++seen[flags.lost.empty() ? "all stated" : "lost"];
    for (const StrategyField& field : shown_fields(plan.strategy)) {
      if (!always_shown(field.key)) ++seen[fmt::format("{}={}", field.key, field.value)];
    }
    if (!plan.strategy.layer_split.empty()) ++seen["layer_split"];
    for (const char* key : {"sharding_stage", "schedule", "recompute"})
      ++seen[fmt::format("{}={}", key, field_text(plan.strategy, key))];
  }
};

/// How many plans are drawn for each target; PLIMSOLL_DRAWS=10000 takes a minute or two.
int draws() {
  const char* wanted = std::getenv("PLIMSOLL_DRAWS");
  return wanted == nullptr ? 2'000 : std::stoi(wanted);
}

void expect_plans_again(const char* target, Plan (*draw)(Random&), const char* file,
                        const std::vector<std::string>& losable,
                        const std::vector<const char*>& choices) {
  const FlagTable& table = *flag_table_for(target);
  Random random(20261124);
  Counts counts;
  for (int i = 0; i < draws(); ++i) {
    const Plan plan = draw(random);
    const PlanFlags flags = flags_of(plan, table, "plan.json");
    const std::string text = flags_document(plan, table, flags);
    ASSERT_TRUE(looks_like_framework_document(text)) << text;
    ImportGiven given;
    given.name = "drawn";
    given.devices = plan.devices;
    const Imported read = import_text(text, file, given);
    ASSERT_EQ(difference(plan, flags, read, losable), "") << i << "\n" << text;
    counts.count(plan, flags);
  }
  for (const char* choice : choices) EXPECT_GT(counts.seen[choice], draws() / 500) << choice;
}

TEST(FlagsDocument, TorchtitanGivesThePlanAgain) {
  // Without shards, tensor and pipeline ranks compute in float32 (maybe_enable_amp).
  expect_plans_again(
      "torchtitan", random_titan_plan, "drawn.toml", {"precision"},
      {"torchtitan", "torchtitan-compiled", "torchtitan-async-tp", "all stated", "lost",
       "layer_split", "sharding_stage=0", "sharding_stage=1", "sharding_stage=2",
       "sharding_stage=3", "schedule=gpipe", "cp=2", "context_exchange=all_gather",
       "embedding_as_layers=2", "recompute=per_op", "fp8=rowwise", "fp8=tensorwise"});
}

TEST(FlagsDocument, ModelsWithoutANameAreRefused) {
  Random random(3);
  Plan plan = random_titan_plan(random);
  plan.job.layers += 8;
  plan.strategy.layer_split.clear();
  plan.strategy.recompute_list.clear();
  try {
    flags_of(plan, *flag_table_for("torchtitan"), "plan.json");
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "plan.json: at /job: torchtitan names its models and has none of these sizes; "
                 "known: llama3 8B, llama3 70B, llama3 405B, llama3 debugmodel");
  }
}

TEST(FlagsDocument, MegatronBridgeGivesThePlanAgain) {
  // Narrow moments beside fp32 masters are the one choice here that these settings cannot state.
  expect_plans_again("megatron-bridge", random_megatron_plan, "drawn.yaml", {"main_parameter_type"},
                     {"megatron-lm",
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
                      "overlap_param_gather=false"});
}

}  // namespace
}  // namespace plimsoll
