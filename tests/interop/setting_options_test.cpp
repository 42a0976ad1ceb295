// Command lines that name a configuration and replace some of its values.
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "interop/imports/imported.h"

namespace plimsoll {
namespace {

Imported read_options(const std::string& script) { return import_text(script, "train.sh", {}); }

std::string failure(const std::string& script) {
  try {
    read_options(script);
  } catch (const InputError& error) {
    return error.what();
  }
  return "it was read";
}

const std::string kLargest =
    "torchrun --nproc_per_node=8 --nnodes 8 --local-ranks-filter 0 -m torchtitan.train "
    "--module llama3 --config llama3_405b --parallelism.pipeline_parallel_degree 1";

TEST(SettingOptions, ReplaceValuesOfTheNamedConfiguration) {
  const Imported imported = read_options(R"(#!/bin/bash
ARGS=(
  --module llama3 --config=llama3_70b
  --training.local-batch-size=2   # of 8
  --parallelism.data_parallel_shard_degree 8
  --compile.enable --compile.components model,loss
  --training.steps 20
)
torchrun --nproc_per_node 8 --nnodes=8 --rdzv_backend c10d -m torchtitan.train "${ARGS[@]}" "$@"
)");
  EXPECT_EQ(imported.kind, "torchtitan 2026-02-23");
  EXPECT_EQ(imported.devices, 64);
  EXPECT_EQ(imported.framework->name, "torchtitan-compiled");
  const Job& job = *imported.job;
  EXPECT_EQ(job.layers, 80);
  EXPECT_EQ(job.sequence, 8192);
  EXPECT_EQ(job.global_batch, 16);
  EXPECT_EQ(job.optimizer.learning_rate, 1.5e-4);
  const Strategy& strategy = *imported.strategy;
  EXPECT_EQ(strategy.mp, 8);  // of the configuration, like the next two
  EXPECT_TRUE(strategy.tokens.sequence_parallel);
  EXPECT_EQ(strategy.recompute, Recompute::full);
  EXPECT_EQ(strategy.micro_batch, 2);
  EXPECT_EQ(strategy.sharding_degree, 8);
  EXPECT_EQ(strategy.sharding_stage, 3);
}

TEST(SettingOptions, VariablesOfTheProgramsScriptNameTheConfiguration) {
  const Imported imported = read_options(
      "NGPU=4 MODULE=llama3 CONFIG=\"llama3_8b\" ./run_train.sh "
      "--activation_checkpoint.mode='none' --training.global_batch_size 16\n");
  EXPECT_EQ(imported.devices, 4);
  EXPECT_EQ(imported.framework->name, "torchtitan");
  EXPECT_EQ(imported.job->layers, 32);
  EXPECT_EQ(imported.job->global_batch, 16);
  EXPECT_EQ(imported.strategy->recompute, Recompute::none);
  EXPECT_EQ(imported.strategy->micro_batch, 1);
  EXPECT_EQ(imported.strategy->sharding_degree, 4);
}

TEST(SettingOptions, Fp8AndSwitchesAreTheConfigurations) {
  const Imported named = read_options(kLargest);
  EXPECT_EQ(named.framework->name, "torchtitan-async-tp");
  EXPECT_EQ(named.strategy->precision.fp8, Fp8::tensorwise);
  const Imported off =
      read_options(kLargest + " --parallelism.no-enable-async-tensor-parallel --compile.no_enable");
  EXPECT_EQ(off.framework->name, "torchtitan");
  EXPECT_EQ(off.strategy->precision.fp8, Fp8::tensorwise);
}

TEST(SettingOptions, ErrorsNameLineAndOption) {
  const std::string start =
      "torchrun --nproc_per_node 8 -m torchtitan.train --module llama3 --config ";
  EXPECT_EQ(failure("\n" + start + "llama3_9b"),
            "train.sh: at line 2: --module llama3 --config llama3_9b: no such configuration is "
            "known; known: --module llama3 --config llama3_8b, --module llama3 --config "
            "llama3_70b, --module llama3 --config llama3_405b, --module llama3 --config "
            "llama3_debugmodel, --module llama3 --config llama3_debugmodel_float8, --module llama3 "
            "--config llama3_debugmodel_opt_in_bwd");
  EXPECT_EQ(failure(start + "llama3_8b --model.flavor 70B"),
            "train.sh: at line 1: --model.flavor: no option is known to set it; named "
            "configurations state it");
  const auto says = [&](const std::string& script, const std::string& words) {
    const std::string text = failure(start + script);
    EXPECT_NE(text.find(words), text.npos) << text;
  };
  says("llama3_8b --parallelism.module_fqns_per_model_part a,b c", "no option is known to set it");
  says("$(cat name)", "train.sh: at line 1: --config");
  says("llama3_8b --training.seq_len", "training.seq_len: it takes 1 value");
  says("llama3_8b --training.seq_len long", "training.seq_len long: a number is required");
  says("llama3_debugmodel_opt_in_bwd", "clip_norm is 1; the norm is of all gradients at once");
  says("llama3_8b --parallelism.tensor_paralel_degree 2",
       "did you mean parallelism.tensor_parallel_degree?");
  says("llama3_8b\n" + start + "llama3_70b", "a second command has --module");
}

}  // namespace
}  // namespace plimsoll
