// Rows of trainers with a separate framework file, and of devices by their names.
#include <gtest/gtest.h>

#include "tests/published/published_rows.h"

namespace plimsoll {
namespace {

Json aleph_alpha_row() {
  Json row = plain_row();
  row["framework"] = "aleph-alpha-scaling (PyTorch, 3D parallel, ZeRO-1, 1F1B)";
  set_source(row, "github:Aleph-Alpha/NeurIPS-WANT-submission-efficient-parallelization-layouts@1");
  row["recompute"] = "none";
  row["parallel"]["zero_stage"] = 1;
  row["attention"] = "flash";
  row["kernels"] = "flash_attention2";
  return row;
}

TEST(Trainers, AlephAlphasRowsStateTheirKernels) {
  Json row = aleph_alpha_row();
  const PublishedTarget target = target_of(row);
  ASSERT_EQ(target.missing, "");
  EXPECT_EQ(target.framework.name, "aleph-alpha-scaling");
  EXPECT_TRUE(target.framework.kernels.attention.flash);
  EXPECT_TRUE(target.framework.kernels.elementwise.by_op);
  EXPECT_FALSE(target.framework.kernels.elementwise.fused_norms);
  row["kernels"] = "flash_attention2 + RMS kernel";
  EXPECT_TRUE(target_of(row).framework.kernels.elementwise.fused_norms);
  row["attention"] = "unfused";
  row["kernels"] = "fused";
  EXPECT_FALSE(target_of(row).framework.kernels.attention.flash);
  EXPECT_TRUE(target_of(row).framework.kernels.elementwise.fused_softmax);
  row["kernels"] = "torch";
  EXPECT_FALSE(target_of(row).framework.kernels.attention.flash);
  EXPECT_FALSE(target_of(row).framework.kernels.elementwise.fused_softmax);
}

TEST(Trainers, RowsHaveTheAttentionKernelOfTheirRelease) {
  const auto kernel = [](Json row) { return target_of(row).framework.kernels.attention.kernel; };
  Json row = plain_row();
  row["framework"] = "pytorch-fsdp";
  row["attention"] = "flash";
  row["parallel"] = {{"tp", 1}, {"pp", 1}, {"dp", 16}, {"zero_stage", 3}};
  EXPECT_EQ(kernel(row), AttentionKernel::flash_2);
  set_source(row, "github:mosaicml/llm-foundry@1", "line 98 (section \"H100 80GB BF16\")");
  EXPECT_EQ(kernel(row), AttentionKernel::triton);
  set_source(row, "github:mosaicml/llm-foundry@1",
             "line 75 (section \"H100 80GB BF16 (Large Scale, >= 128 GPUs)\")");
  EXPECT_EQ(kernel(row), AttentionKernel::flash_2);
  set_source(row, "github:NVIDIA-NeMo/Automodel@1", "docs/performance-summary.mdx");
  row["notes"] = "TE + fsdp2_prefetch";
  EXPECT_EQ(kernel(row), AttentionKernel::native);
  row["notes"] = "TE + DeepEP + FlexAttn";
  EXPECT_EQ(kernel(row), AttentionKernel::flash_2);
  Json flash_1 = aleph_alpha_row();
  flash_1["kernels"] = "flash_attentionv1";
  EXPECT_EQ(kernel(flash_1), AttentionKernel::flash_1);
}

TEST(Trainers, LayersOfHuggingFaceInAPipelineRunOpByOp) {
  Json row = plain_row();
  row["framework"] = "deepspeed (pipeline)";
  EXPECT_FALSE(target_of(row).framework.kernels.attention.repeats_keys);
  set_source(row, "github:Jack31098/llm_training_demo@1");
  const Framework framework = target_of(row).framework;
  EXPECT_TRUE(framework.kernels.elementwise.by_op && framework.kernels.attention.repeats_keys);
  EXPECT_EQ(framework.host.dispatch.ops_per_kernel, 2);
  EXPECT_NE(framework.memory.loss, LossMemory::by_op);
  row["precision"] = "fp32";
  EXPECT_EQ(target_of(row).framework.memory.loss, LossMemory::by_op);
}

TEST(Trainers, LightningsMinGptRunsOpByOp) {
  Json row = plain_row();
  row["framework"] = "pytorch fsdp (Lightning)";
  row["model"]["name"] = "gpt2-xl";
  row["parallel"] = {{"tp", 1}, {"pp", 1}, {"dp", 16}, {"zero_stage", 3}};
  set_source(row, "Lightning minGPT FSDP benchmark README (stored public file)");
  const PublishedTarget target = target_of(row);
  EXPECT_TRUE(target.framework.kernels.elementwise.by_op &&
              target.framework.kernels.elementwise.fused_norms);
  EXPECT_EQ(target.job.dropout, 0.1);
}

TEST(Trainers, KwaisScriptOfMegatronOverlapsNoReplicas) {
  Json row = plain_row();
  row["framework"] = "megatron-lm";
  row["attention"] = "flash";
  EXPECT_TRUE(target_of(row).framework.parallelism.overlap.grad_reduce);
  set_source(row, "github:kwai/Megatron-Kwai@1");
  const Framework framework = target_of(row).framework;
  EXPECT_FALSE(framework.parallelism.overlap.grad_reduce ||
               framework.parallelism.overlap.param_gather);
}

TEST(Trainers, ColossalAisReplicasHaveOneMicroBatch) {
  Json row = plain_row();
  row["framework"] = "colossalai";
  row["attention"] = "flash";
  row["recompute"] = "unknown";
  row["parallel"] = {{"tp", 1}, {"pp", 1}, {"dp", 16}, {"zero_stage", 2}};
  row["batch"] = {{"micro", nullptr}, {"global", 128}};
  set_source(row, "github:hpcaitech/ColossalAI@1");
  const PublishedTarget target = target_of(row);
  ASSERT_EQ(target.missing, "");
  ASSERT_EQ(target.strategies.size(), 1);
  EXPECT_EQ(target.strategies[0].micro_batch, 8);
  EXPECT_EQ(target.strategies[0].recompute, Recompute::full);
  EXPECT_TRUE(target.framework.kernels.elementwise.by_op &&
              target.framework.kernels.elementwise.fused_norms);
  row["measured"]["peak_mem_gb"] = 116.25;
  row["measured"]["peak_mem_kind"] = "device (MiB/1024)";
  const PublishedRun run = run_of(row);
  EXPECT_EQ(run.memory_allocated, Bytes(std::int64_t{119040} << 20));  // what its benchmark prints
  EXPECT_FALSE(run.memory_device);
  row["parallel"] = {{"tp", 2}, {"pp", 4}, {"dp", 1}, {"zero_stage", 1}};
  EXPECT_EQ(target_of(row).missing, "a layout of the stated number of GPUs");
}

// An embedding, the layers, a norm and a head are spread evenly; the first stages have the rest.
TEST(Trainers, AlephAlphasStagesShareThePartsOfTheModel) {
  Json row = aleph_alpha_row();
  row["model"]["layers"] = 40;
  row["parallel"]["pp"] = 4;
  row["parallel"]["dp"] = 16 / 4 / row["parallel"]["tp"].get<int>();
  const PublishedTarget target = target_of(row);
  ASSERT_EQ(target.missing, "");
  EXPECT_EQ(target.strategies.at(0).pipeline.layer_split,
            (std::vector<std::int64_t>{10, 11, 11, 8}));
}

// A row that states attention without flash kernels is not predicted with them.
TEST(Trainers, StatedAttentionDecidesWhatIsRepeated) {
  Json row = plain_row();
  row["framework"] = "nemo (megatron-lm)";
  row["recompute"] = "selective";
  row["attention"] = "unfused";
  const PublishedTarget unfused = target_of(row);
  ASSERT_EQ(unfused.missing, "");
  EXPECT_FALSE(unfused.framework.kernels.attention.flash);
  EXPECT_EQ(unfused.strategies.at(0).recompute, Recompute::selective);
  row["attention"] = "flash";
  const PublishedTarget flash = target_of(row);
  EXPECT_TRUE(flash.framework.kernels.attention.flash);
  EXPECT_EQ(flash.strategies.at(0).recompute, Recompute::none) << "flash kernels keep no scores";
}

// A stage that the run printed is ZeRO's; the states of BF16_Optimizer are divided in stage 0, too.
TEST(Trainers, ZeroKeepsGradientsOfSixteenBits) {
  Json row = plain_row();
  row["framework"] = "megatron-deepspeed";
  row["precision"] = "bf16";
  row["parallel"]["zero_stage"] = 1;
  row["zero_stage_printed"] = 0;
  EXPECT_EQ(target_of(row).framework.memory.gradients, GradientMemory::bf16_also_in_f32);
  row["zero_stage_printed"] = 1;
  EXPECT_EQ(target_of(row).framework.memory.gradients, GradientMemory::as_computed);
}

// Programs of 2023 have the kernels and the overlap of their time.
TEST(Trainers, RowsOfNemoHaveWhatTheirReleaseHad) {
  Json row = plain_row();
  row["framework"] = "nemo (MLPerf)";
  row["framework_version"] = "dgxh100_n64_nemo";
  row["attention"] = "flash";
  row["precision"] = "fp8";
  row["parallel"]["zero_stage"] = 1;
  set_source(row, "github:mlcommons/training_results_v4.0@1");
  const PublishedTarget later = target_of(row);
  EXPECT_EQ(later.framework.kernels.attention.kernel, AttentionKernel::native);
  EXPECT_TRUE(later.strategies.at(0).precision.fp8_parameters);
  set_source(row, "github:mlcommons/training_results_v3.0@1");
  const PublishedTarget first = target_of(row);
  EXPECT_EQ(first.framework.kernels.attention.kernel, AttentionKernel::flash_1);
  EXPECT_FALSE(first.strategies.at(0).precision.fp8_parameters);
  row["framework_version"] = "23.03";
  set_source(row, "github:NVIDIA/NeMo-Framework-Launcher@1");
  EXPECT_FALSE(target_of(row).framework.parallelism.overlap.receives_ahead);
  row["framework_version"] = "24.07";
  EXPECT_TRUE(target_of(row).framework.parallelism.overlap.receives_ahead);
}

TEST(Trainers, FlagPerfsMegatronHasTheKernelThatItsReadmeStates) {
  Json row = plain_row();
  row["framework"] = "megatron-core";
  row["model"]["name"] = "llama3-8b";
  row["attention"] = "flash";
  EXPECT_EQ(target_of(row).framework.kernels.attention.kernel, AttentionKernel::native);
  set_source(row, "github:FlagOpen/FlagPerf@1");
  EXPECT_EQ(target_of(row).framework.kernels.attention.kernel, AttentionKernel::flash_2);
  row["framework"] = "flagscale (megatron-lm)";
  row["recompute"] = "selective";
  EXPECT_EQ(target_of(row).framework.kernels.attention.kernel, AttentionKernel::flash_2);
  row["precision"] = "fp32";
  EXPECT_FALSE(target_of(row).framework.kernels.attention.flash) << "its operands have 16 bits";
  EXPECT_EQ(target_of(row).strategies.at(0).recompute, Recompute::selective);
}

TEST(Trainers, ATestOfMegatronWithAFusedLossIsNotDeterministic) {
  Json row = plain_row();
  row["framework"] = "megatron-core";
  set_source(row, "github:NVIDIA/Megatron-LM@1", "tests/functional_tests/test_cases/gpt");
  row["model"]["name"] = "gpt/gpt3_mcore_te_tp2_pp2_cross_entropy_loss_fusion";
  const Framework framework = target_of(row).framework;
  EXPECT_EQ(framework.name, "megatron-lm");
  EXPECT_EQ(framework.memory.loss, LossMemory::fused);
  EXPECT_EQ(framework.host.waits.transfers_hold, TransfersHold::host);
  EXPECT_EQ(framework.host.dispatch.ops_per_kernel, 1);
  EXPECT_FALSE(framework.kernels.products.add_gradients);
  row["model"]["name"] = "gpt/gpt3_mcore_te_tp2_pp2";
  EXPECT_EQ(target_of(row).framework.host.dispatch.ops_per_kernel, 1.3)
      << "fills of four tensors of a module";
}

TEST(Trainers, ATestOfMegatronSaysThatEndsCountAsLayers) {
  Json row = plain_row();
  row["framework"] = "megatron-core";
  row["attention"] = "flash";
  row["model"]["layers"] = 6;
  row["model"]["name"] = "gpt/gpt3_tp1_pp4_vp2_account_for_embedding_loss_in_pipeline_split";
  row["parallel"] = {{"tp", 1}, {"pp", 4}, {"vpp", 2}, {"dp", 4}};
  set_source(row, "github:NVIDIA/Megatron-LM@1", "tests/functional_tests/test_cases/gpt");
  const PublishedTarget target = target_of(row);
  ASSERT_EQ(target.missing, "");
  EXPECT_EQ(target.strategies.at(0).pipeline.embedding_as_layers, 1);
  EXPECT_EQ(target.strategies.at(0).pipeline.loss_as_layers, 1);
}

TEST(Trainers, ShardsThatARowStatesAreItsShards) {
  Json row = plain_row();
  row["framework"] = "internevo";
  row["attention"] = "flash";
  row["parallel"]["tp"] = row["parallel"]["pp"] = 1;
  row["parallel"]["dp"] = 16;
  row["parallel"]["zero_stage"] = 1;
  EXPECT_EQ(target_of(row).strategies.at(0).sharding_degree, 16);
  row["parallel"]["zero1_shards"] = 4;
  set_source(row, "github:InternLM/InternEvo@1");
  const PublishedTarget target = target_of(row);
  ASSERT_EQ(target.missing, "");
  EXPECT_EQ(target.strategies.at(0).precision.gradients, GradientType::computed);
  EXPECT_EQ(target.strategies.at(0).sharding_degree, 4);
  EXPECT_EQ(target.strategies.at(0).dp, 4);
}

TEST(Trainers, FlagPerfsScriptsSayWhatTheirTablesLeaveOut) {
  Json row = plain_row();
  row["framework"] = "flagscale (megatron-lm)";
  EXPECT_FALSE(run_of(row).framework->kernels.elementwise.by_op);
  set_source(row, "github:FlagOpen/FlagPerf@1");
  EXPECT_TRUE(run_of(row).framework->kernels.elementwise.by_op);
  EXPECT_TRUE(run_of(row).framework->kernels.elementwise.fused_norms);
  row["framework"] = "megatron-core";
  row["model"]["name"] = "llama3-8b";
  EXPECT_FALSE(run_of(row).framework->kernels.elementwise.by_op);
  EXPECT_EQ(run_of(row).dropout, 0.1);
}

TEST(Trainers, Tf32IsATypeOfProducts) {
  Json row = plain_row();
  row["precision"] = "tf32";
  const PublishedTarget target = target_of(row);
  ASSERT_EQ(target.missing, "");
  EXPECT_EQ(target.job.precision, DType::f32);
  EXPECT_TRUE(target.framework.kernels.products.tf32);
  EXPECT_EQ(target.cluster.device.peak_fp32, FlopsPerSecond(156e12));
}

TEST(Trainers, ATypeThatATableLeavesOutIsThatOfTheNextRelease) {
  Json row = plain_row();
  row["framework"] = "megatron-bridge";
  row["framework_version"] = "25.09 NeMo Container";
  row["precision"] = "unknown";
  row["needs"] = {"precision unknown"};
  set_source(row, "github:NVIDIA-NeMo/Megatron-Bridge@1");
  const PublishedRun run = run_of(row);
  EXPECT_EQ(run.fp8, Fp8::current);
  EXPECT_EQ(run.precision, DType::bf16);
  set_source(row, "github:somebody/else");
  EXPECT_EQ(target_of(row).missing, "precision unknown");
}

/// Recipes of Megatron Bridge: what tables leave out, or print wrongly.
TEST(Trainers, RecipesOfLlamaOnBlackwellSayWhatTablesDoNot) {
  Json row = plain_row();
  row["framework"] = "megatron-bridge";
  row["model"]["name"] = "llama3-70b";
  row["hardware"]["gpu"] = "GB300 (NVL72)";
  row["hardware"]["gpus"] = 64;
  row["recompute"] = "unknown";
  row["batch"] = {{"micro", 2}, {"global", 256}};
  row["parallel"] = {{"tp", 1}, {"pp", 1}, {"dp", 64}, {"zero_stage", 3}};
  EXPECT_EQ(run_of(row).recompute, StatedRecompute::unknown);
  set_source(row, "github:NVIDIA-NeMo/Megatron-Bridge@1");
  EXPECT_EQ(run_of(row).recompute, StatedRecompute::none);
  row["parallel"] = {{"tp", 1}, {"pp", 4}, {"vpp", 1}, {"dp", 16}, {"zero_stage", 1}};
  EXPECT_EQ(run_of(row).virtual_stages, 1);
  EXPECT_EQ(run_of(row).micro_batch, 2);
  row["framework_version"] = "26.02.01 NeMo Container";
  EXPECT_EQ(run_of(row).virtual_stages, 5);
  EXPECT_EQ(run_of(row).micro_batch, 1);
}

TEST(Trainers, DevicesAreKnownByTheirNames) {
  for (const auto& [gpu, cluster] : std::initializer_list<std::pair<const char*, const char*>>{
           {"A800-80GB SXM", "hgx-a800-80gb"},
           {"H800-80GB SXM", "hgx-h800-80gb"},
           {"MI100", "mi100-32gb"},
           {"MI250X", "frontier-mi250x-64gb"},
           {"MI300X", "mi300x-192gb"},
           {"MI325X", "mi325x-256gb"},
           {"MI350X", "mi350x-288gb"},
           {"MI355X", "mi355x-288gb"},
           {"V100-PCIE-32GB", "v100-pcie-32gb"}}) {
    Json row = plain_row();
    row["hardware"]["gpu"] = gpu;
    row["hardware"]["gpu_mem_gb"] = nullptr;
    EXPECT_EQ(run_of(row).cluster, cluster) << gpu;
  }
}

}  // namespace
}  // namespace plimsoll
