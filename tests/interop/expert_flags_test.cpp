// Experts and latent attention as flags: written for a job and read again, and what is refused.
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "interop/flags/flag_document.h"
#include "interop/flags/flag_table.h"
#include "interop/flags/framework_flags.h"
#include "interop/imports/imported.h"
#include "interop/imports/readers.h"
#include "models/job/job.h"

namespace plimsoll {
namespace {

Job preset(const std::string& name) {
  return read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/models/presets/jobs/" + name + ".json");
}

/// The flags of a target for the job and the strategy, as a script starts them.
std::string script_of(const Job& job, const Strategy& strategy, std::int64_t devices) {
  const FlagTable& table = *flag_table_for("megatron");
  std::string text = "torchrun --nproc_per_node 8 --nnodes " + std::to_string(devices / 8) + " " +
                     table.target->program;
  const FlagFields fields = fields_of(job, strategy, framework_by_name("megatron-lm"));
  for (const auto& [row, words] : rows_of(table, fields)) {
    for (const std::string& word : words) text += " " + shell_word(word);
  }
  return text + "\n";
}

/// A job of the shapes of DeepSeek-V3.
Job latent_job() {
  Job job = preset("qwen3-30b-a3b");
  job.head_size = 0;
  job.kv_heads = job.heads;
  job.qk_norm = false;
  job.latent = Latent{1536, 512, 128, 64, 128};
  job.experts = Experts{.count = 256,
                        .chosen = 8,
                        .ffn_hidden = 2048,
                        .shared_ffn_hidden = 2048,
                        .dense_layers = 3,
                        .score = RouterScore::sigmoid,
                        .scale = 2.5,
                        .groups = 8,
                        .top_groups = 4,
                        .group_best = 2,
                        .balance_loss = 0.0001,
                        .selection_bias = 0.002};
  job.mtp = MultiToken{.depths = 1, .loss_weight = 0.3};
  return job;
}

void expect_same(Job job, const std::string& fields, std::int64_t devices) {
  SCOPED_TRACE(job.name + " " + fields);
  Strategy strategy = parse_strategy(fields);
  const std::string script = script_of(job, strategy, devices);
  const Imported imported = read_framework_script(script, "train.sh");
  job.name = imported.job->name;
  EXPECT_EQ(job_text(*imported.job), job_text(job)) << script;
  EXPECT_EQ(strategy_text(*imported.strategy), strategy_text(strategy)) << script;
}

TEST(ExpertFlags, AreReadAsTheyAreWritten) {
  expect_same(preset("mixtral-8x22b"),
              "mp=2,pp=8,sharding_degree=8,sharding_stage=1,ep=8,sequence_parallel=true", 128);
  expect_same(preset("mixtral-8x22b"),
              "mp=8,sharding_degree=8,sharding_stage=1,sequence_parallel=true", 64);
  expect_same(preset("qwen3-235b-a22b"),
              "mp=4,pp=2,sharding_degree=4,sharding_stage=1,ep=4,etp=4,sequence_parallel=true,"
              "expert_dispatch=all_gather",
              32);
  expect_same(preset("glm-4.5"), "sharding_degree=16,sharding_stage=1,ep=16", 16);
  expect_same(latent_job(), "sharding_degree=64,sharding_stage=1,ep=64", 64);
  expect_same(latent_job(), "sharding_degree=64,sharding_stage=1,ep=64,overlap_shared_experts=true",
              64);
  expect_same(latent_job(),
              "sharding_degree=64,sharding_stage=1,ep=64,overlap_expert_exchange=true", 64);
  Job alternating = preset("mixtral-8x7b");
  alternating.experts->pattern = {false, true};
  expect_same(alternating, "dp=8", 8);
  Job latent = preset("minicpm3-4b");
  latent.factors = {};  // no flag states these
  expect_same(latent, "mp=2,sharding_degree=4,sharding_stage=1", 8);
  Job capped = preset("mixtral-8x7b");
  capped.experts->capacity = 1.25;
  capped.experts->z_loss = 0.001;
  capped.experts->normalized = false;
  expect_same(capped, "sharding_degree=8,sharding_stage=1,ep=8", 8);
  Job narrow = preset("mixtral-8x7b");
  narrow.experts->latent_hidden = 1024;
  narrow.experts->balance_sequences = 2;
  expect_same(narrow, "dp=8,micro_batch=2", 8);
}

Experts read_experts(const std::string& flags) {
  const std::string script = script_of(preset("mixtral-8x22b"), parse_strategy("dp=8"), 8);
  return *read_framework_script(script.substr(0, script.size() - 1) + " " + flags + "\n",
                                "train.sh")
              .job->experts;
}

TEST(ExpertFlags, PatternsOfLayersAreThoseOfPython) {
  const std::string list = "'([0]*2+[1]*54)'", spelt = "'[0,0]+[1]*50 + ([1]*4)'";
  EXPECT_EQ(read_experts("--moe-layer-freq " + list).dense_layers, 2);
  EXPECT_EQ(read_experts("--moe-layer-freq " + spelt).dense_layers, 2);
  EXPECT_EQ(read_experts("--moe-layer-freq 1").dense_layers, 0);
  EXPECT_EQ(read_experts("--moe-layer-freq 2").pattern, (std::vector<bool>{true, false}));
  EXPECT_EQ(read_experts("--moe-layer-freq '[0,1]*28'").pattern, (std::vector<bool>{false, true}));
}

TEST(ExpertFlags, WhatNoJobStatesIsRefused) {
  const auto refusal = [](const std::string& flags) -> std::string {
    try {
      read_experts(flags);
      return "";
    } catch (const InputError& error) {
      return error.what();
    }
  };
  const std::pair<std::string, std::string> cases[] = {
      {"--moe-layer-freq 0", "a list of 0 and 1"},
      {"--moe-layer-freq '[0]*56'", "no layer has experts"},
      {"--moe-layer-freq '[1]*40'", "it has 40 layers, and the model 56"},
      {"--moe-layer-freq '[1]*99999999999'", "a list of 0 and 1"},
      {"--moe-layer-freq '[2]*56'", "a list of 0 and 1"},
      {"--moe-router-load-balancing-type sinkhorn", "is required"},
      {"--mlp-type residual", "a weighted sum of an MLP and one expert"},
      {"--moe-min-capacity 4", "no least number of rows"},
      {"--moe-expert-parallel-size 8", "pad experts to a capacity"},
      {"--topk 2", "pad experts to a capacity"},
      {"--moe-router-topk 9", "a token chooses among 8 experts"},
  };
  for (const auto& [flags, wanted] : cases) {
    const std::string found = refusal(flags);
    EXPECT_NE(found.find(wanted), std::string::npos) << flags << ": " << found;
  }
}

TEST(ExpertFlags, TheDispatcherSaysHowOftenATokenTravels) {
  std::string script = script_of(preset("mixtral-8x22b"), parse_strategy("dp=8,ep=8"), 8);
  const auto framework_of = [](const std::string& text) {
    return *read_framework_script(text, "train.sh").framework;
  };
  EXPECT_FALSE(framework_of(script).parallelism.sends_tokens_once_per_node);
  script.replace(script.find("alltoall"), std::string("alltoall").size(), "flex");
  EXPECT_TRUE(framework_of(script).parallelism.sends_tokens_once_per_node);
  EXPECT_EQ(framework_of(script).name, "megatron-lm-flex");
  // Another program may differ in the same field.
  script.replace(script.find("--moe-token"), 0, "--no-gradient-accumulation-fusion ");
  script.replace(script.find("flex"), std::string("flex").size(), "alltoall");
  EXPECT_FALSE(framework_of(script).kernels.products.add_gradients);
  EXPECT_EQ(framework_of(script).name, "megatron-lm");
}

TEST(ExpertFlags, ExpertsAreSharedAsOtherLayersWhereNothingElseIsSaid) {
  const std::string script = script_of(preset("mixtral-8x22b"),
                                       parse_strategy("mp=2,dp=4,sequence_parallel=true,ep=2"), 8);
  const std::size_t at = script.find(" --expert-tensor-parallel-size 1");
  ASSERT_NE(at, std::string::npos);
  std::string without = script;
  without.erase(at, std::string(" --expert-tensor-parallel-size 1").size());
  EXPECT_EQ(read_framework_script(without, "train.sh").strategy->experts.etp, 2);
}

TEST(ExpertFlags, FilesOfSettingsStateThemToo) {
  struct Case {
    Job job;
    const char *target, *framework, *fields;
    std::int64_t devices;
  };
  const Job mixtral = preset("mixtral-8x22b");
  Job qwen = preset("qwen3-30b-a3b"), latent = latent_job();
  qwen.experts->balance_loss = 0;  // torchtitan's model has none
  latent.experts->dense_layers = 0;
  const Case cases[] = {
      {mixtral, "megatron-bridge", "megatron-lm",
       "mp=2,pp=8,sharding_degree=8,sharding_stage=1,ep=8,sequence_parallel=true", 128},
      {latent, "megatron-bridge", "megatron-lm",
       "sharding_degree=64,sharding_stage=1,ep=64,overlap_shared_experts=true", 64},
      {qwen, "torchtitan", "torchtitan", "sharding_degree=8,sharding_stage=3,ep=4", 8},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.target);
    const Strategy strategy = parse_strategy(one.fields);
    const Framework framework = framework_by_name(one.framework);
    const std::string text =
        document_of(*flag_table_for(one.target), fields_of(one.job, strategy, framework), {});
    ImportGiven given;
    given.devices = one.devices;
    const Imported imported = import_text(text, "settings", given);
    ASSERT_TRUE(imported.job && imported.strategy) << text;
    EXPECT_EQ(imported.job->experts, one.job.experts) << text;
    EXPECT_EQ(imported.job->latent, one.job.latent) << text;
    EXPECT_EQ(imported.strategy->ep, strategy.ep) << text;
    EXPECT_EQ(imported.strategy->experts.etp, strategy.experts.etp) << text;
    EXPECT_EQ(imported.strategy->experts.dispatch, strategy.experts.dispatch) << text;
  }
}

}  // namespace
}  // namespace plimsoll
