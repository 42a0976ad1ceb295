// Imports of flags list what is unknown, and refuse what is illegal while the file is at hand.
#include "interop/imports/flag_import.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "interop/imports/imported.h"
#include "tests/interop/changed_text.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

const std::string kRun =
    "torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py --num-layers 24 --hidden-size 2048 "
    "--num-attention-heads 16 --ffn-hidden-size 5504 --swiglu --normalization RMSNorm "
    "--position-embedding-type rope --disable-bias-linear --attention-dropout 0 --hidden-dropout 0 "
    "--seq-length 2048 --max-position-embeddings 2048 --bf16 --micro-batch-size 1 "
    "--global-batch-size 32 ";
const std::string kRunVocab = "--vocab-size 50304 ";

Imported read_run(const std::string& text, const ImportGiven& given = {}) {
  return import_text(text, "train.sh", given);
}

std::string run_refusal(const std::string& text, const ImportGiven& given = {}) {
  try {
    read_run(text, given);
    return "read";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(FlagImport, UnknownFlagsAndProgramsAreListedApart) {
  const std::string fork = with(kRun, "pretrain_gpt.py", "pretrain_ourlab.py");
  const Imported imported = read_run(
      fork + kRunVocab + "--train-iters 100 \\\n --use-conv-gate --conv-gate-group 4 --OurNorm\n");
  const std::vector<UnknownFlag> unknown = {{"--OurNorm", 2},
                                            {"--conv-gate-group", 2},
                                            {"--use-conv-gate", 2},
                                            {"pretrain_ourlab.py", 1}};
  EXPECT_EQ(imported.unknown, unknown);
  EXPECT_EQ(imported.unread, std::vector<std::string>{"--train-iters"});
  try {
    refuse_unknown(imported, "train.sh");
    ADD_FAILURE() << "a run of a fork is taken for one of Megatron-LM";
  } catch (const InputError& error) {
    for (const UnknownFlag& flag : unknown)
      EXPECT_NE(std::string(error.what()).find(text_of(flag)), std::string::npos) << flag.option;
  }
  EXPECT_NE(import_summary(imported, "").find("not known   --OurNorm (line 2)"), std::string::npos);
}

TEST(FlagImport, ModulesArePrograms) {
  const std::string launcher = with(kRun, "torchrun", "python -m torch.distributed.run");
  EXPECT_TRUE(read_run(launcher + kRunVocab).unknown.empty());
  const std::string slurm =
      with(kRun, "torchrun", "srun --nodes=2 --ntasks-per-node=1 --mem=0 torchrun");
  EXPECT_TRUE(read_run(slurm + kRunVocab).unknown.empty());
  const std::string fork = with(kRun, "pretrain_gpt.py", "-m ourlab.train");
  EXPECT_EQ(read_run(fork + kRunVocab).unknown, (std::vector<UnknownFlag>{{"ourlab.train", 1}}));
}

/// A script of a site: launcher, data, logging, checkpoints.
TEST(FlagImport, OrdinaryScriptsHaveNoUnknownFlags) {
  const Imported imported = read_run(
      "srun --container-image=x.sqsh --cpu-bind=none " + kRun + kRunVocab +
      "--rdzv_backend c10d --master_addr $MASTER_ADDR --node_rank $RANK --tokenizer-model a.model "
      "--data-path 0.5 a 0.5 b --split 99,1,0 --save x --load x --save-interval 100 "
      "--wandb-project p --tensorboard-dir t --log-throughput --log-interval 1 --eval-iters 0 "
      "--lr 1e-4 --min-lr 1e-5 --lr-decay-style cosine --lr-warmup-iters 10 --init-method-std 0.01 "
      "--use-mcore-models --transformer-impl transformer_engine --no-masked-softmax-fusion "
      "--exit-duration-in-mins 230 --ckpt-format torch_dist --async-save --num-workers 4 "
      "--norm-epsilon 1e-5 --no-load-optim --distributed-timeout-minutes 60 --manual-gc "
      "--use-checkpoint-opt_param-scheduler --attention-softmax-in-fp32 --rerun-mode disabled\n");
  EXPECT_EQ(imported.unknown, std::vector<UnknownFlag>{});
}

TEST(FlagImport, KeysOfConfigurationFilesAreUnknownToo) {
  ImportGiven given;
  given.job = read_job("llama3-8b");
  given.devices = 8;
  const Imported imported = import_text(
      R"({"zero_optimization": {"stage": 2, "our_shards": 4}, "bf16": {"enabled": true},
          "steps_per_print": 10, "scheduler": {"type": "WarmupLR"},
          "flops_profiler": {"enabled": false}})",
      "ds.json", given);
  EXPECT_EQ(imported.unknown, (std::vector<UnknownFlag>{{"zero_optimization.our_shards", 1}}));
}

TEST(FlagImport, VariablesThatMayHoldFlagsAreUnknown) {
  const Imported imported =
      read_run("if [ $A ]; then\nMORE=--num-experts\nfi\n" + kRun + kRunVocab + "$MORE\n");
  ASSERT_EQ(imported.unknown.size(), 1u);
  EXPECT_TRUE(states(text_of(imported.unknown[0]), {"$MORE", "line 4", "condition", "line 2"}));
  const std::string sizes = "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 ";
  const std::string message = run_refusal("if [ \"$SIZE\" = \"small\" ]; then\nMODEL=\"" + sizes +
                                          "\"\nfi\n" + with(kRun, sizes, "$MODEL ") + kRunVocab);
  EXPECT_TRUE(states(message, {"train.sh", "--num-layers is required", "$MODEL", "line 2"}));
}

/// The flag that states a value is named if a job refuses the value.
TEST(FlagImport, FaultsOfTheJobNameFlags) {
  EXPECT_TRUE(states(run_refusal(kRun + "--vocab-size 0\n"),
                     {"train.sh", "--vocab-size 0", "line 1", "2 to 16777216"}));
  const std::string experts =
      run_refusal(with(kRun, "--swiglu ", "") + kRunVocab + "--num-experts 8\n");
  EXPECT_TRUE(states(experts, {"train.sh", "--swiglu", "--squared-relu"}));
}

TEST(FlagImport, SlurmStatesDevices) {
  const std::string asked = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n";
  const std::string counts = with(kRun, "--nproc_per_node 8 --nnodes 1",
                                  "--nproc-per-node $SLURM_GPUS_PER_NODE --nnodes $SLURM_NNODES");
  const Imported imported =
      read_run(asked + counts + kRunVocab + "--tensor-model-parallel-size $SLURM_GPUS_PER_NODE\n");
  EXPECT_EQ(imported.devices, 32);
  EXPECT_EQ(imported.strategy->mp, 8);
  const std::string by_srun = with(kRun, "torchrun --nproc_per_node 8 --nnodes 1", "srun python");
  EXPECT_EQ(read_run(asked + by_srun + kRunVocab).devices, 32);
  EXPECT_EQ(read_run("WORLD_SIZE=$((4 * 8))\n" + by_srun + kRunVocab).devices, 32);
  // The command's own nodes are fewer than the job's.
  const std::string two = with(by_srun, "srun python", "srun -N 2 python");
  const std::string tasks = "#SBATCH --ntasks-per-node=8\n";
  EXPECT_EQ(read_run(asked + tasks + two + kRunVocab).devices, 16);
  EXPECT_EQ(read_run("#SBATCH --nodes=4\n" + tasks + two + kRunVocab).devices, 16);
  // Tasks that are not GPUs state no ranks.
  EXPECT_FALSE(read_run(asked + "#SBATCH --ntasks=4\n" + by_srun + kRunVocab).devices);
}

TEST(FlagImport, LaunchersStateDevices) {
  const auto devices = [](const std::string& launcher) {
    return read_run(with(kRun, "torchrun --nproc_per_node 8 --nnodes 1", launcher) + kRunVocab)
        .devices;
  };
  for (const char* launcher :
       {"srun -N 2 --ntasks-per-node=8 python -u", "srun -N2 -n16 -l python",
        "srun --mpi pmix --nodes 2 --gres=gpu:h100:8 python", "srun --ntasks=16 -G 16 python",
        "mpirun --allow-run-as-root -np 16 -x NCCL_DEBUG=INFO --bind-to none python",
        "mpiexec -n 16 -ppn 8 python", "deepspeed --num_nodes 2 --num_gpus 8",
        "deepspeed --hostfile hosts --num_nodes=2 --num_gpus=8",
        "accelerate launch --num_processes 16 --num_machines 2 --mixed_precision bf16",
        "torchrun --nnodes=2 --nproc-per-node=8",
        "srun -N 2 --ntasks-per-node 1 torchrun --nnodes 2 --nproc_per_node 8"})
    EXPECT_EQ(devices(launcher), 16) << launcher;
  EXPECT_EQ(devices("deepspeed --num_gpus 8"), 8);
  // A file of hosts, tasks that are not GPUs, and what only a shell could tell, are not counted.
  for (const char* launcher :
       {"deepspeed --hostfile hosts --num_gpus 8", "srun -N 2 -n 2 --gpus-per-node 8 python",
        "mpirun -np $RANKS python", "python"})
    EXPECT_FALSE(devices(launcher)) << launcher;
}

TEST(FlagImport, NoFlagSwallowsWhatMayHoldFlags) {
  for (const char* flags : {"--our-gate $EXTRA_ARGS", "--async-save $EXTRA_ARGS", "--swiglu $MORE",
                            "--our-gate $MORE"}) {
    const Imported imported = read_run(kRun + kRunVocab + flags + "\n");
    EXPECT_TRUE(std::ranges::any_of(imported.unknown, [](const UnknownFlag& flag) {
      return !flag.why.empty();
    })) << flags;
  }
  EXPECT_TRUE(read_run(kRun + kRunVocab + "--save $CHECKPOINT\n").unknown.empty());
}

TEST(FlagImport, TokenizersHaveKnownVocabularies) {
  const auto vocab = [](const std::string& flags) { return read_run(kRun + flags).job->vocab; };
  EXPECT_EQ(vocab("--tokenizer-type Llama2Tokenizer --tokenizer-model a/tokenizer.model"), 32000);
  EXPECT_EQ(vocab("--tokenizer-type Llama3Tokenizer"), 128256);
  EXPECT_EQ(vocab("--tokenizer-type GPT2BPETokenizer --vocab-file v --merge-file m"), 50257);
  const std::string of_hub = "--tokenizer-type HuggingFaceTokenizer --tokenizer-model ";
  EXPECT_EQ(vocab(of_hub + "meta-llama/Meta-Llama-3-8B"), 128256);
  EXPECT_EQ(vocab(of_hub + "/models/Qwen/Qwen2.5-7B/"), 151665);
  EXPECT_EQ(vocab(of_hub + "deepseek-ai/DeepSeek-V3"), 128815);
  // A size that the script states comes first.
  EXPECT_EQ(vocab("--tokenizer-type Llama2Tokenizer --vocab-size 50304"), 50304);
  EXPECT_NE(run_refusal(kRun + of_hub + "ours/tokens").find("--vocab of this command"),
            std::string::npos);
  ImportGiven given;
  given.vocab = 65536;
  EXPECT_EQ(read_run(kRun + of_hub + "ours/tokens", given).job->vocab, 65536);
  EXPECT_THROW(import_text(R"({"zero_optimization": {"stage": 2}})", "ds.json", given), UsageError);
}

TEST(FlagImport, GradientsFollowTheirMainType) {
  const Imported imported = read_run(kRun + kRunVocab +
                                     "--use-distributed-optimizer --use-precision-aware-optimizer "
                                     "--main-grads-dtype bf16\n");
  EXPECT_EQ(imported.strategy->precision.gradients, GradientType::computed);
  EXPECT_EQ(field_text(*imported.strategy, "main_gradient_type"), "computed");
  EXPECT_EQ(read_run(kRun + kRunVocab).strategy->precision.gradients, GradientType::f32);
}

TEST(FlagImport, WhatTheRulesRefuseIsRefusedWithItsFlag) {
  const std::string four = kRun + kRunVocab + "--pipeline-model-parallel-size 4 \\\n";
  EXPECT_EQ(
      run_refusal(four + "--pipeline-model-parallel-layout 'Et*6|t*6|t*6|t*5,L'"),
      "train.sh: at line 2: --pipeline-model-parallel-layout Et*6|t*6|t*6|t*5,L: it has 23 of "
      "the model's 24 layers");
  const std::string batch =
      run_refusal(with(kRun, "--global-batch-size 32", "--global-batch-size 12") + kRunVocab);
  EXPECT_NE(batch.find("cannot run as"), std::string::npos) << batch;
}

TEST(FlagImport, LearnedPositionsWithGatesSayWhatIsNearest) {
  const std::string gpt =
      with(with(kRun, "--position-embedding-type rope --disable-bias-linear ", ""),
           "--swiglu --normalization RMSNorm ", "");
  EXPECT_EQ(run_refusal(gpt + kRunVocab + "--softmax-type vanilla"), "read");
  for (const char* flag : {"--swiglu", "--normalization RMSNorm", "--disable-bias-linear",
                           "--num-experts 8", "--qk-layernorm", "--multi-latent-attention",
                           "--position-embedding-type learned_absolute --swiglu"}) {
    const std::string message = run_refusal(gpt + kRunVocab + flag);
    EXPECT_NE(message.find("--position-embedding-type rope is the nearest"), std::string::npos)
        << message;
  }
}

TEST(FlagImport, LaunchesThatWaitAndGraphsAreRead) {
  const Imported plain = read_run(kRun + kRunVocab);
  EXPECT_FALSE(plain.framework->host.waits.for_launches);
  EXPECT_EQ(plain.framework->host.dispatch.graphs, Graphs::nothing);
  const Imported waits = read_run("export CUDA_LAUNCH_BLOCKING=1\n" + kRun + kRunVocab);
  EXPECT_TRUE(waits.framework->host.waits.for_launches);
  EXPECT_EQ(waits.notes.size(), plain.notes.size() + 1);
  EXPECT_FALSE(read_run("export CUDA_LAUNCH_BLOCKING=0\n" + kRun + kRunVocab)
                   .framework->host.waits.for_launches);
  const auto graphs = [](const std::string& flags) {
    return read_run(kRun + kRunVocab + flags).framework->host.dispatch.graphs;
  };
  EXPECT_EQ(graphs("--cuda-graph-impl none"), Graphs::nothing);
  EXPECT_EQ(graphs("--cuda-graph-impl transformer_engine"), Graphs::layers);
  EXPECT_EQ(graphs("--enable-cuda-graph"), Graphs::layers);
  EXPECT_EQ(graphs("--cuda-graph-impl full_iteration"), Graphs::step);
}

}  // namespace
}  // namespace plimsoll
