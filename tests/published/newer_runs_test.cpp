// Published runs of 2024 and later: racks of 72, stated stages and overlaps, what is not predicted.
#include <gtest/gtest.h>

#include "tests/published/published_rows.h"

namespace plimsoll {
namespace {

/// NVIDIA's recipe for Nemotron-4 340B on GB200, with `hardware`, and `more` keys of a row.
Json recipe(const std::string& hardware, const std::string& more = "") {
  const std::string text =
      R"([{"id": "test/1", "source": {"repo_or_doc": "doc", "path_or_issue": "page"},
           "hardware": )" +
      hardware + R"(,
           "model": {"name": "nemotron4-340b", "hidden": 18432, "layers": 96, "heads": 96,
                     "kv_heads": 8, "ffn_hidden": 73728, "vocab": 256000, "seq_len": 4096},
           "parallel": {"tp": 8, "pp": 4, "dp": 4, "vpp": 12},
           "batch": {"micro": 1, "global": 32}, "precision": "bf16", "recompute": "unknown",
           "attention": "flash", "measured": {"step_time_s": 2.2}, "framework": "nemo")" +
      more + "}]";
  return parse_json(text, "test.json").at(0);
}

const std::string kRacks = R"x({"gpu": "GB200 (NVL72)", "gpus": 128, "gpus_per_node": 4})x";

TEST(NewerRuns, ARackIsOneNodeWhateverItsTraysAre) {
  const PublishedTarget two = target_of(recipe(kRacks));
  ASSERT_EQ(two.missing, "");
  EXPECT_EQ(two.cluster.name, "gb200-nvl72");
  EXPECT_EQ(two.cluster.levels[0].devices, 64);  // 16 of the 18 trays of each of two racks
  Json one = recipe(R"x({"gpu": "GB300 (NVL72)", "gpus": 32, "gpus_per_node": 4})x");
  one["parallel"]["dp"] = 1;
  const PublishedTarget rack = target_of(one);
  ASSERT_EQ(rack.missing, "");
  EXPECT_EQ(rack.cluster.name, "gb300-nvl72");
  EXPECT_EQ(rack.cluster.levels[0].devices, 32);
}

TEST(NewerRuns, NamesOfGpusThatContainOthersAreTold) {
  const auto cluster_of = [](const std::string& gpu) {
    return target_of(recipe(R"({"gpu": ")" + gpu + R"(", "gpus": 128})")).cluster.name;
  };
  EXPECT_EQ(cluster_of("B300-SXM (DGX B300)"), "hgx-b300");
  EXPECT_EQ(cluster_of("B200-SXM (DGX B200)"), "hgx-b200");
  EXPECT_EQ(cluster_of("GH200-96GB"), "alps-gh200-96gb");
  EXPECT_EQ(cluster_of("H200-141GB"), "hgx-h200");
  EXPECT_EQ(cluster_of("GB200"), "gb200-nvl4");
}

/// Names as nvidia-smi and vendors write them, with and without the memory.
TEST(NewerRuns, NamesAndMemoryOfGpusTellTheirPreset) {
  const auto cluster_of = [](const std::string& gpu, int memory = 0) {
    Json row = recipe(R"({"gpu": ")" + gpu + R"(", "gpus": 128})");
    if (memory > 0) row["hardware"]["gpu_mem_gb"] = memory;
    const PublishedTarget target = target_of(row);
    return target.missing.empty() ? target.cluster.name : target.missing;
  };
  for (const char* gpu : {"NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB", "A100-SXM-80GB", "A100 80GB",
                          "A100-80GB SXM", "A100 (80 GB)"}) {
    EXPECT_EQ(cluster_of(gpu), "dgx-a100-80gb") << gpu;
    EXPECT_EQ(cluster_of(gpu, 80), "dgx-a100-80gb") << gpu;
  }
  EXPECT_EQ(cluster_of("A100"), "dgx-a100-40gb");
  EXPECT_EQ(cluster_of("A100", 80), "dgx-a100-80gb");
  EXPECT_EQ(cluster_of("NVIDIA A100-SXM4-40GB", 40), "dgx-a100-40gb");
  EXPECT_EQ(cluster_of("NVIDIA A100 80GB PCIe"), "a100-pcie-80gb");
  EXPECT_EQ(cluster_of("NVIDIA A100-PCIE-40GB"), "gpu NVIDIA A100-PCIE-40GB");
  EXPECT_EQ(cluster_of("NVIDIA A100-SXM-64GB"), "gpu NVIDIA A100-SXM-64GB");
  EXPECT_EQ(cluster_of("A100", 64), "gpu A100");
  EXPECT_EQ(cluster_of("NVIDIA H100 80GB HBM3"), "dgx-h100-80gb");
  EXPECT_EQ(cluster_of("H100", 64), "gpu H100");
  EXPECT_EQ(cluster_of("NVIDIA H100 NVL"), "h100-nvl-94gb");
  EXPECT_EQ(cluster_of("NVIDIA H100 PCIe"), "h100-pcie-80gb");
  EXPECT_EQ(cluster_of("NVIDIA H200"), "hgx-h200");
  EXPECT_EQ(cluster_of("NVIDIA H20"), "hgx-h20-96gb");
  EXPECT_EQ(cluster_of("AMD Instinct MI355X"), "mi355x-288gb");
  EXPECT_EQ(cluster_of("MI300X"), "mi300x-192gb");
  for (const char* gpu : {"H800", "NVIDIA H800", "H800-80GB SXM"})
    EXPECT_EQ(cluster_of(gpu), "hgx-h800-80gb") << gpu;
  for (const char* gpu : {"NVIDIA A800-SXM4-80GB", "A800-80GB SXM", "A800"})
    EXPECT_EQ(cluster_of(gpu, 80), "hgx-a800-80gb") << gpu;
  EXPECT_EQ(cluster_of("NVIDIA A800-SXM4-40GB"), "gpu NVIDIA A800-SXM4-40GB");
}

TEST(NewerRuns, OverlapThatIsStatedCounts) {
  EXPECT_FALSE(target_of(recipe(kRacks)).framework.parallelism.overlap.async_tensor_parallel);
  const Json with = recipe(kRacks, R"(, "overlap": {"tp_comm": true, "p2p": true})");
  EXPECT_TRUE(target_of(with).framework.parallelism.overlap.async_tensor_parallel);
  Json bridge = recipe(kRacks, R"(, "overlap": {"tp_comm": false})");
  bridge["framework"] = "megatron-bridge";
  EXPECT_FALSE(target_of(bridge).framework.parallelism.overlap.async_tensor_parallel);
}

TEST(NewerRuns, LayersOfStagesMayCountEmbeddingAndHead) {
  const auto split_of = [](const std::string& layers) {
    Json run = recipe(kRacks, R"(, "layers_per_stage": )" + layers);
    run["model"]["name"] = "GPT";  // the recipe of Nemotron interleaves
    run["parallel"]["vpp"] = 1;
    return target_of(run).strategies.at(0).pipeline.layer_split;
  };
  EXPECT_EQ(split_of("[23, 25, 25, 25]"), (std::vector<std::int64_t>{22, 25, 25, 24}));
  EXPECT_EQ(split_of("[21, 25, 25, 25]"), (std::vector<std::int64_t>{21, 25, 25, 25}));
  EXPECT_TRUE(split_of("[20, 25, 25, 25]").empty());  // of another model
}

TEST(NewerRuns, RecipesOfCurrentScalingAreSo) {
  Json run = recipe(kRacks);
  const auto fp8_of = [&](const std::string& precision) {
    run["precision"] = precision;
    return target_of(run).strategies.at(0).precision.fp8;
  };
  EXPECT_EQ(fp8_of("fp8 current scaling"), Fp8::current);
  EXPECT_EQ(fp8_of("mxfp8"), Fp8::mxfp8);
  EXPECT_EQ(fp8_of("fp8 blockwise"), Fp8::blockwise);
  EXPECT_EQ(fp8_of("fp8"), Fp8::delayed);
  EXPECT_EQ(fp8_of("bf16"), Fp8::none);
}

/// torchao's authors measure on Meta's H100.
TEST(NewerRuns, TorchaoStatesItsMachineAndItsLayers) {
  Json run = recipe(R"({"gpu": "H100-80GB SXM", "gpu_mem_gb": 80, "gpus": 8})");
  run["framework"] = "torchtitan";
  run["compile"] = true;
  run["parallel"] = {{"tp", 1}, {"pp", 1}, {"dp", 8}, {"zero_stage", 3}};
  run["batch"] = {{"micro", 1}, {"global", 8}};
  run["recompute"] = "selective";
  EXPECT_EQ(target_of(run).cluster.name, "dgx-h100-80gb");
  EXPECT_EQ(target_of(run).strategies.at(0).recompute, Recompute::per_op);
  set_source(run, "github:pytorch/ao@36027d82d (BSD-3)", "docs/source/workflows/training.md");
  EXPECT_EQ(target_of(run).cluster.name, "grand-teton-h100-96gb");
  EXPECT_EQ(target_of(run).strategies.at(0).recompute, Recompute::per_op);
  run["notes"] = "recompute: every 2nd layer; FSDP2";
  const PublishedTarget target = target_of(run);
  EXPECT_EQ(target.strategies.at(0).recompute, Recompute::full);
  EXPECT_EQ(target.strategies.at(0).recomputed.list.size(), std::size_t(target.job.layers) / 2);
  run["hardware"]["gpu"] = "B200";
  EXPECT_EQ(target_of(run).cluster.name, "hgx-b200");
}

TEST(NewerRuns, TheRecipeOfNemotronInterleavesWhereItsTableSaysNothing) {
  Json run = recipe(kRacks);
  run["parallel"]["vpp"] = 1;
  EXPECT_EQ(target_of(run).strategies.at(0).pipeline.virtual_stages, 12);
}

TEST(NewerRuns, WhatIsOfXlaIsNotPredicted) {
  Json run = recipe(kRacks);
  run["framework"] = "maxtext (JAX/XLA)";
  EXPECT_EQ(target_of(run).missing, "framework maxtext (JAX/XLA)");
}

TEST(NewerRuns, WithoutAWordOnRecomputeBothWaysArePredicted) {
  Json run = recipe(kRacks, R"(, "needs": ["recompute unknown"])");
  run["framework"] = "Megatron-DeepSpeed";
  run["parallel"]["vpp"] = 1;
  const PublishedTarget target = target_of(run, own_numbers());
  ASSERT_EQ(target.missing, "");
  EXPECT_EQ(target.strategies.size(), 2u);
}

TEST(NewerRuns, StateOnTheHostIsPredictedWhereTheRowSaysWhatIsThere) {
  Json row = plain_row();
  set_source(row, "github:jzhang38/EasyContext@6b0d310 (Apache-2.0)", "README.md Speed");
  row["framework"] = "deepspeed zero-3";
  row["needs"] = {"offload"};
  row["parallel"] = {{"tp", 1}, {"pp", 1}, {"dp", 8}, {"zero_stage", 3}};
  row["batch"] = {{"micro", 1}, {"global", 8}};
  row["hardware"]["gpus"] = 8;
  row["offload"] = {{"kind", "activations"}};
  EXPECT_EQ(target_of(row).missing, "offload");
  row["offload"] = {{"kind", "parameters and optimizer state"}};
  const PublishedTarget target = target_of(row);
  ASSERT_EQ(target.missing, "");
  EXPECT_EQ(target.strategies.at(0).optimizer.offload_percent, 100);
  EXPECT_TRUE(target.strategies.at(0).gathers.offload);
}

TEST(NewerRuns, ZeroBubblePipelinesHaveTheirSchedule) {
  Json row = plain_row();
  set_source(row, "arXiv:2401.10241v1 (Zero Bubble Pipeline Parallelism)", "Table 4");
  row["framework"] = "megatron-lm (zero-bubble fork)";
  row["precision"] = "fp16 or bf16 (not stated)";
  row["needs"] = {"vocabulary unknown", "zero-bubble"};
  row["model"].erase("vocab");
  row["parallel"] = {{"tp", 1}, {"pp", 8}, {"dp", 1}};
  row["model"]["layers"] = 22;
  row["batch"] = {{"micro", 1}, {"global", 24}};
  row["hardware"]["gpus"] = 8;
  row["recompute"] = "none";
  row["attention"] = "flash";
  const auto with = [&](const std::string& schedule) {
    row["schedule"] = schedule;
    return target_of(row);
  };
  const PublishedTarget plain = with("1F1B");
  ASSERT_EQ(plain.missing, "");
  EXPECT_EQ(plain.strategies.at(0).schedule, Schedule::one_f_one_b);
  EXPECT_FALSE(plain.framework.kernels.attention.flash)
      << "whatever the row states: its memory has scores";
  EXPECT_EQ(layers_per_part(plain.job, plain.strategies.at(0)),
            (std::vector<std::int64_t>{2, 3, 3, 3, 3, 3, 3, 2}));
  EXPECT_GT(plain.job.clip_norm, 0);
  EXPECT_EQ(with("ZB-1p").strategies.at(0).schedule, Schedule::zb_h1);
  // Its optimizer does not wait for the norm, unless the row says so.
  const PublishedTarget two = with("ZB-2p");
  EXPECT_EQ(two.strategies.at(0).schedule, Schedule::zb_h2);
  EXPECT_EQ(two.job.clip_norm, 0);
  EXPECT_GT(with("ZB-2p, optimizer step synchronised by all-reduce").job.clip_norm, 0);
  // Other programs have no such schedule.
  set_source(row, "github:somebody/runs", "page");
  row["model"]["vocab"] = 32000;
  EXPECT_EQ(with("ZB-1p").missing, "zero-bubble");
}

TEST(NewerRuns, GraphsAndLaunchesThatWaitAreOfTheRow) {
  Json row = plain_row();
  const auto graphs = [&](const Json& stated) {
    row["cuda_graph"] = stated;
    return run_of(row).framework->host.dispatch.graphs;
  };
  EXPECT_EQ(graphs(nullptr), Graphs::nothing);
  EXPECT_EQ(graphs({{"impl", "none"}, {"scope", "full_iteration"}}), Graphs::nothing);
  EXPECT_EQ(graphs({{"impl", "local"}, {"scope", "full_iteration"}}), Graphs::step);
  EXPECT_EQ(graphs({{"impl", "full_iteration"}, {"scope", Json::array()}}), Graphs::step);
  EXPECT_EQ(graphs({{"impl", "transformer_engine"}, {"scope", nullptr}}), Graphs::layers);
  EXPECT_EQ(graphs(true), Graphs::layers);
  const Json attention = Json::array({"attn", "moe_router"}), router = Json::array({"moe_router"});
  EXPECT_EQ(graphs({{"impl", "transformer_engine"}, {"scope", attention}}), Graphs::attention);
  EXPECT_EQ(graphs({{"impl", "transformer_engine"}, {"scope", router}}), Graphs::router);
  EXPECT_FALSE(run_of(row).framework->host.waits.for_launches);
  row["notes"] = "CUDA_LAUNCH_BLOCKING=1 as in the script";
  EXPECT_TRUE(run_of(row).framework->host.waits.for_launches);
}

TEST(NewerRuns, ModelsOfQwen3HaveNormsOfQueriesAndKeys) {
  Json row = plain_row();
  EXPECT_FALSE(run_of(row).qk_norm);
  row["model"]["name"] = "Qwen3-4B";
  EXPECT_TRUE(run_of(row).qk_norm);
  row["model"]["qk_norm"] = false;
  EXPECT_FALSE(run_of(row).qk_norm);
}

TEST(NewerRuns, MatricesOfAnMlpAreThoseThatTheRowOrItsModelSays) {
  Json row = plain_row();
  row["model"]["name"] = "lucie-7b";
  EXPECT_EQ(run_of(row).architecture, Family::gpt);
  row["model"]["swiglu"] = true;
  EXPECT_EQ(run_of(row).architecture, Family::llama);
  row["model"]["name"] = "llama-like";
  row["model"]["swiglu"] = false;
  EXPECT_EQ(run_of(row).architecture, Family::gpt);
  row["model"].erase("swiglu");
  row["swiglu"] = false;
  EXPECT_EQ(run_of(row).architecture, Family::gpt);
}

}  // namespace
}  // namespace plimsoll
