// Reading of Megatron-LM's flags: whole scripts, the shell's forms, and what is refused.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "interop/imports/readers.h"
#include "interop/shell/shell_words.h"
#include "tests/interop/changed_text.h"

namespace plimsoll {
namespace {

Imported read_script(const std::string& name) {
  const std::string file = std::string(PLIMSOLL_SOURCE_DIR) + "/tests/interop/" + name;
  const std::string text = read_file(file);
  EXPECT_TRUE(looks_like_framework_script(text));
  return read_framework_script(text, file);
}

TEST(MegatronLm, GptOf175BillionParameters) {
  const Imported imported = read_script("gpt3-175b.sh");
  Job job;
  job.name = "gpt3-175b";
  job.layers = 96;
  job.hidden = 12288;
  job.heads = job.kv_heads = 96;
  job.ffn_hidden = 49152;
  job.vocab = 50257;
  job.sequence = 2048;
  job.global_batch = 1536;
  job.precision = DType::f16;
  job.optimizer.learning_rate = 6e-5;
  job.loss_scale = LossScale{4294967296, 2, 0.5, 1000};
  job.dropout = 0.1;
  job.seed = 1234;
  EXPECT_EQ(job_text(*imported.job), job_text(job));
  EXPECT_EQ(imported.devices, 1024);
  Strategy strategy = parse_strategy(
      "mp=8,pp=16,sharding_degree=8,gradient_type=computed,overlap_param_gather=false,"
      "grad_bucket_bytes=80000000");
  EXPECT_EQ(strategy_text(*imported.strategy), strategy_text(strategy));
  Framework framework = framework_by_name("megatron-lm");
  framework.memory.loss = LossMemory::in_place;
  EXPECT_EQ(*imported.framework, framework);
  EXPECT_TRUE(bool(legal(*imported.job, strategy, 1024)));
  const std::vector<std::string> unread = {"--data-path",
                                           "--init-method-std",
                                           "--load",
                                           "--log-interval",
                                           "--lr-decay-iters",
                                           "--lr-decay-style",
                                           "--lr-warmup-fraction",
                                           "--master_addr",
                                           "--master_port",
                                           "--merge-file",
                                           "--min-lr",
                                           "--node_rank",
                                           "--rerun-mode",
                                           "--save",
                                           "--split",
                                           "--train-iters",
                                           "--vocab-file"};
  EXPECT_EQ(imported.unread, unread);
}

TEST(MegatronLm, LlamaOf70BillionParameters) {
  const Imported imported = read_script("llama3-70b.sh");
  Job job = read_job("llama3-70b");
  job.seed = 1234;
  job.rotary.scale = {RotaryScaling::llama3, 8, 8192, 1, 4};
  EXPECT_EQ(job_text(*imported.job), job_text(job));
  EXPECT_EQ(imported.devices, 64);
  const Strategy strategy = parse_strategy(
      "mp=4,pp=4,virtual_stages=5,cp=2,sharding_degree=2,sequence_parallel=true,"
      "grad_bucket_bytes=160000000");
  EXPECT_EQ(strategy_text(*imported.strategy), strategy_text(strategy));
  EXPECT_EQ(*imported.framework, framework_by_name("megatron-lm"));
  EXPECT_TRUE(bool(legal(*imported.job, strategy, 64)));
  EXPECT_TRUE(bool(legal(*imported.framework, *imported.job, strategy)));
}

const std::string kGpt =
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
    "--max-position-embeddings 32 --micro-batch-size 1 --vocab-size 100 --nnodes 1 "
    "--nproc_per_node 4 ";

Imported read_flags(const std::string& flags) { return read_framework_script(flags, "train.sh"); }

TEST(MegatronLm, MuonHasOwnersOfWholeTensors) {
  const std::string muon =
      kGpt +
      "--optimizer muon --muon-nesterov --muon-no-split-qkv --muon-coefficient-type simple "
      "--muon-extra-scale-factor 0.2 --adam-beta2 0.95 --untie-embeddings-and-output-weights ";
  const Imported sharded = read_flags(muon + "--muon-momentum 0.9 --use-distributed-optimizer");
  Optimizer optimizer;
  optimizer.kind = OptimizerKind::muon;
  optimizer.momentum = 0.9;
  optimizer.weight_decay = 0.01;
  optimizer.learning_rate = sharded.job->optimizer.learning_rate;
  EXPECT_EQ(sharded.job->optimizer, optimizer);
  EXPECT_EQ(sharded.strategy->optimizer.flatten, Flatten::none);
  EXPECT_EQ(sharded.strategy->owners.sharding_owner, ShardingOwner::sorted_greedy);
  EXPECT_EQ(sharded.strategy->sharding_degree, 4);
  const Imported whole = read_flags(muon);
  EXPECT_EQ(whole.job->optimizer.momentum, 0.95);
  EXPECT_EQ(whole.strategy->owners.sharding_owner, ShardingOwner::elements);
  EXPECT_EQ(whole.strategy->dp, 4);
  // Matrices of query, key and value apart, or parts of matrices, are another computation.
  EXPECT_THROW(read_flags(kGpt + "--optimizer muon"), InputError);
  EXPECT_THROW(read_flags(muon + "--tensor-model-parallel-size 2"), InputError);
  EXPECT_NO_THROW(read_flags(muon + "--tensor-model-parallel-size 2 --muon-tp-mode distributed"));
}

// A factor alone scales nothing (megatron/training/arguments.py).
TEST(MegatronLm, RotaryScalingIsASwitch) {
  std::string text = read_file(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/interop/llama3-70b.sh");
  const std::string flag = "--use-rope-scaling";
  ASSERT_NE(text.find(flag), text.npos);
  text.replace(text.find(flag), flag.size(), "--rope-scaling-factor 16");
  EXPECT_EQ(read_framework_script(text, "train.sh").job->rotary.scale, RotaryScale{});
}

TEST(MegatronLm, DefaultsAreThoseOfTheFramework) {
  const Imported imported = read_flags(kGpt);
  EXPECT_EQ(imported.job->ffn_hidden, 256);
  EXPECT_EQ(imported.job->global_batch, 4);
  EXPECT_EQ(imported.job->precision, DType::f32);
  EXPECT_TRUE(imported.job->tied_embeddings);
  EXPECT_EQ(imported.job->optimizer.weight_decay, 0.01);
  EXPECT_EQ(imported.strategy->dp, 4);
  EXPECT_FALSE(imported.strategy->gradients.overlap);
  const std::string llama = kGpt + "--position-embedding-type rope --swiglu --disable-bias-linear ";
  EXPECT_EQ(read_flags(llama).job->ffn_hidden, 128);  // 2 / 3 of 256, a multiple of 64
  EXPECT_EQ(read_flags(llama).job->norm, NormKind::layer_norm);
  EXPECT_EQ(read_flags(llama + "--group-query-attention").job->kv_heads, 1);
  EXPECT_EQ(read_flags(llama + "--num-query-groups 2").job->kv_heads, 4);
}

TEST(MegatronLm, ReadsWhatDescendantsOfLlamaChanged) {
  const std::string rope = kGpt + "--position-embedding-type rope ";
  const Job qwen = *read_flags(rope +
                               "--swiglu --disable-bias-linear --normalization RMSNorm "
                               "--qk-layernorm --kv-channels 32 --rotary-percent 0.5")
                        .job;
  EXPECT_TRUE(qwen.qk_norm);
  EXPECT_EQ(qwen.head_size, 32);
  EXPECT_EQ(qwen.rotary.fraction, 0.5);
  EXPECT_FALSE(qwen.qkv_bias || qwen.out_bias || qwen.mlp_bias);
  EXPECT_EQ(read_flags(rope + "--kv-channels 16").job->head_size, 0);  // 64 / 4
  const Job biased = *read_flags(rope).job;
  EXPECT_TRUE(biased.qkv_bias && biased.out_bias && biased.mlp_bias);
  EXPECT_EQ(biased.activation, Activation::gelu);
}

TEST(MegatronLm, ReadsUnitsAndLayouts) {
  const Imported bf16 = read_flags(kGpt + "--bf16 --ddp-bucket-size 2000");
  EXPECT_EQ(bf16.strategy->gradients.bucket_bytes, Bytes(8000));
  EXPECT_EQ(read_flags(kGpt + "--bf16 --grad-reduce-in-bf16 --ddp-bucket-size 3000")
                .strategy->gradients.bucket_bytes,
            Bytes(6000));
  const Imported layout = read_flags(kGpt +
                                     "--global-batch-size 8 --pipeline-model-parallel-size 2 "
                                     "--pipeline-model-parallel-layout 'E|(t|)*1,t*3|L'");
  EXPECT_EQ(field_text(*layout.strategy, "layer_split"), "0+1+3+0");
  EXPECT_EQ(layout.strategy->pipeline.virtual_stages, 2);
  const Imported empty = read_flags(kGpt +
                                    "--global-batch-size 8 --pipeline-model-parallel-size 2 "
                                    "--pipeline-model-parallel-layout 'Et*2||t|tL'");
  EXPECT_EQ(field_text(*empty.strategy, "layer_split"), "2+0+1+1");
}

TEST(MegatronLm, OverlapOverTensorRanksNeedsSplitTokens) {
  const Imported imported =
      read_flags(kGpt + "--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap");
  EXPECT_TRUE(imported.framework->parallelism.overlap.async_tensor_parallel);
  EXPECT_TRUE(imported.strategy->tokens.sequence_parallel);
}

TEST(MegatronLm, RanksThatAreLeftAreDataParallel) {
  const Imported copies =
      read_flags(kGpt +
                 "--use-distributed-optimizer --num-distributed-optimizer-instances 2 "
                 "--overlap-grad-reduce --overlap-param-gather");
  EXPECT_EQ(copies.strategy->dp, 2);
  EXPECT_EQ(copies.strategy->sharding_degree, 2);
  EXPECT_EQ(copies.strategy->sharding_stage, 1);
  const Imported no_count = read_framework_script(
      "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
      "--max-position-embeddings 32 --micro-batch-size 1 --vocab-size 100 --global-batch-size 8",
      "train.sh");
  EXPECT_FALSE(no_count.devices || no_count.strategy);
  EXPECT_TRUE(no_count.job);
}

TEST(MegatronLm, ShellFormsGiveTheirWords) {
  const ShellScript script = read_shell(
      "A=1 # one\nB=\"x y\"; C='$A'\nLIST=( a \"b c\" # no\n  $A )\nLIST+=(d)\n"
      "run $A \"$B\" $B ${C} ${D:-7} \"${LIST[@]}\" e\\\nf > out 2>&1 | tee log\n"
      "cat <<EOF\n--not-read 1\nEOF\nlast \"$@\"\n",
      "x.sh");
  std::string text;
  for (const ShellWords& command : script.commands) {
    for (const ShellWord& word : command) text += "[" + word.text + "]";
    text += "\n";
  }
  EXPECT_EQ(text, "[run][1][x y][x][y][$A][7][a][b c][1][d][ef]\n[tee][log]\n[cat]\n[last]\n");
}

TEST(MegatronLm, FlagsUnderAConditionAreNamed) {
  const Imported imported = read_flags("if [ $X ]; then\nMORE=\"--bf16\"\nfi\nrun " + kGpt +
                                       "--seed ${S:-\"7\"} $MORE\n");
  EXPECT_EQ(imported.job->seed, 7);
  EXPECT_EQ(imported.job->precision, DType::f32);
  EXPECT_EQ(imported.unknown,
            (std::vector<UnknownFlag>{{"$MORE", 4, "$MORE is set under a condition (line 2)"}}));
}

TEST(MegatronLm, AnUnknownVariableSpoilsOneFlagOfItsString) {
  const Imported imported = read_flags(
      "ARGS=\"--tokenizer-model ${TOKENIZER} --seed 7 $MORE --bf16\"\nrun " + kGpt + "$ARGS\n");
  EXPECT_EQ(imported.job->seed, 7);
  EXPECT_EQ(imported.job->precision, DType::bf16);
  EXPECT_EQ(imported.unknown,
            (std::vector<UnknownFlag>{{"$MORE", 1, "$MORE is not set in this file"}}));
}

TEST(ShellWords, SplitAroundUnknownParts) {
  const ShellScript script = read_shell("A=\"a $(b c) d$E f\"\nrun x$A\n", "x.sh");
  std::vector<std::string> words;
  for (const ShellWord& word : script.commands.back()) {
    words.push_back(word.text + (word.unknown.empty() ? "" : " ?"));
  }
  EXPECT_EQ(words, (std::vector<std::string>{"run", "xa", "$(...) ?", "d$E ?", "f"}));
}

TEST(MegatronLm, WhatMayNotRunSetsNoVariable) {
  const auto layers = [](const std::string& lines) {
    const ShellScript script = read_shell("LAYERS=32\n" + lines + "\nrun $LAYERS\n", "x.sh");
    const ShellWord& word = script.commands.back().back();
    return word.unknown.empty() ? word.text : word.unknown;
  };
  const std::string perhaps = "$LAYERS is set under a condition (line 2)";
  for (const char* lines :
       {"[[ -n $DEBUG ]] && LAYERS=4", "test -z $D || LAYERS=4", "[ $D ] && { echo; LAYERS=4; }",
        "(LAYERS=4)", "if [ x ] && [ $D ]; then LAYERS=4; fi"}) {
    EXPECT_EQ(layers(lines), perhaps) << lines;
  }
  EXPECT_EQ(layers("f() { LAYERS=4; }"), "$LAYERS is set in a function (line 2)");
  EXPECT_EQ(layers("for LAYERS in 4 8; do\n:\ndone"), "$LAYERS is set by a loop");
  EXPECT_EQ(layers("LAYERS=4 true"), "32");
  for (const char* lines :
       {"true && false; LAYERS=4", "[ x ] && LAYERS=4", "{ LAYERS=4; }", "declare -i LAYERS=4",
        "f() { echo; }\nLAYERS=4", "(cd x)\nLAYERS=4", "export LAYERS=4"}) {
    EXPECT_EQ(layers(lines), "4") << lines;
  }
}

TEST(MegatronLm, OneNodeIsTorchrunsDefault) {
  std::string script = kGpt;
  script.erase(script.find("--nnodes 1 "), std::string("--nnodes 1 ").size());
  const Imported imported = read_flags("torchrun pretrain_gpt.py " + script);
  EXPECT_EQ(imported.devices, 4);
  const std::vector<std::string> notes = {"one node is assumed: --nnodes is not given"};
  EXPECT_EQ(imported.notes, notes);
  EXPECT_EQ(read_flags("WORLD_SIZE=16\ntorchrun pretrain_gpt.py " + script).devices, 16);
}

TEST(MegatronLm, NothingIsEvaluated) {
  const Imported imported =
      read_flags("X=$(touch /tmp/never)\n" + kGpt + "--lr-decay-style $X --save `id` $MORE\n");
  EXPECT_EQ(imported.unread, (std::vector<std::string>{"--lr-decay-style", "--save"}));
}

struct Malformed {
  const char* flags;
  const char* message;
};

TEST(MegatronLm, SaysWhyAFlagIsNotRead) {
  const Malformed cases[] = {
      {"--deepspeed_config ds.json",
       "train.sh: at line 1: --deepspeed_config ds.json: a DeepSpeed config has choices that flags "
       "do not state"},
      {"--tensor-model-paralel-size 4",
       "train.sh: at line 1: --tensor-model-paralel-size 4: no such flag is known; did you mean "
       "--tensor-model-parallel-size?"},
      {"a/pretrain_bert.py",
       "train.sh: at line 1: pretrain_bert.py: pretrain_gpt.py trains the "
       "decoders that jobs describe"},
      {"--hidden-size $(cat size)",
       "train.sh: at line 1: --hidden-size $(...): a command substitution is not evaluated; a "
       "number is required"},
      {"--global-batch-size $BATCH",
       "train.sh: at line 1: --global-batch-size $BATCH: $BATCH is not set in this file; a number "
       "is required"},
      {"--global-batch-size 1x",
       "train.sh: at line 1: --global-batch-size 1x: a number is required"},
      {"--kv-channels 128",
       "train.sh: at line 1: --kv-channels 128: --kv-channels 16 follows from the other flags"},
      {"--position-embedding-type rope --swiglu --qk-layernorm",
       "train.sh: --normalization RMSNorm is missing; the other flags need it"},
      {"--swiglu --squared-relu --position-embedding-type rope",
       "train.sh: at line 1: --squared-relu: it states activation squared_relu; --swiglu (line 1) "
       "states swiglu"},
      {"--bf16 --fp16",
       "train.sh: at line 1: --fp16: it states precision fp16; --bf16 (line 1) states bf16"},
      {"--recompute-granularity full --recompute-method uniform --recompute-num-layers 4",
       "train.sh: at line 1: --recompute-num-layers 4: jobs recompute single layers, and no chunks of "
       "several: 1 is the nearest with --recompute-method uniform; block takes a number of layers"},
      {"--hidden-dropout 0.1 --attention-dropout 0",
       "train.sh: at line 1: --hidden-dropout 0.1: it states dropout 0.1; --attention-dropout 0 "
       "(line 1) states 0"},
      {"--pipeline-model-parallel-layout 'E|tx|L'",
       "train.sh: at line 1: --pipeline-model-parallel-layout E|tx|L: found x; a layout of E, t, m, "
       "L and | is required"},
      {"--tensor-model-parallel-size 3",
       "train.sh: tensor 3 x pipeline 1 x context 1 ranks do not divide the 4 devices"},
      {"--fp8-format hybrid --fp8-recipe nvfp4",
       "train.sh: at line 1: --fp8-recipe nvfp4: one of delayed, tensorwise, mxfp8, blockwise is "
       "required"},
      {"--tensor-model-parallel-size 2 --tp-comm-overlap",
       "train.sh: at line 1: --tp-comm-overlap: it states sequence_parallel true; no "
       "--sequence-parallel states false"},
      {"--sequence-parallel --tp-comm-overlap",
       "train.sh: at line 1: --tp-comm-overlap: it states sequence_parallel true; "
       "--sequence-parallel (line 1) states false"},
      {"--save 'x", "train.sh: at line 1: a ' that begins here does not end"},
      {"--bf16 yes", "train.sh: at line 1: --bf16 yes: it takes no value"},
  };
  for (const Malformed& one : cases) {
    try {
      read_flags(kGpt + one.flags);
      ADD_FAILURE() << one.flags << " is read";
    } catch (const InputError& error) {
      EXPECT_STREQ(error.what(), one.message) << one.flags;
    }
  }
}

constexpr const char* kScriptPieces[] = {"$",
                                         "${",
                                         "$(",
                                         "`",
                                         "'",
                                         "\"",
                                         "(",
                                         ")",
                                         "\\\n",
                                         "#",
                                         "0",
                                         "-1",
                                         "1e9",
                                         "99999999999999999999",
                                         "((",
                                         " --",
                                         "=",
                                         "A=$A$A ",
                                         "\xff",
                                         "|",
                                         "--nnodes 4194304 ",
                                         "--pipeline-model-parallel-size "};

TEST(MegatronLm, DamagedScriptsAreReadOrRefused) {
  Random random(7);
  int read_anyway = 0;
  for (const char* name : {"gpt3-175b.sh", "llama3-70b.sh"}) {
    const std::string whole =
        read_file(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/interop/" + name);
    for (int i = 0; i < 5000; ++i) {
      try {
        read_framework_script(damaged(random, whole, kScriptPieces), "train.sh");
        ++read_anyway;
      } catch (const InputError&) {
        continue;
      }
    }
  }
  EXPECT_GT(read_anyway, 1000);
}

TEST(MegatronLm, ValuesOfVariablesDoNotGrowWithoutEnd) {
  std::string script = "A=aaaaaaaaaaaaaaaa\n";
  for (int i = 0; i < 40; ++i) script += "A=\"$A$A\"\n";
  EXPECT_THROW(read_shell(script, "x.sh"), InputError);
}

}  // namespace
}  // namespace plimsoll
