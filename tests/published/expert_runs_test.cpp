// Published runs of mixtures of experts: their jobs, their ranks, and step times of printed rates.
#include <gtest/gtest.h>

#include "tests/published/published_rows.h"

namespace plimsoll {
namespace {

/// A row of a model as large as Qwen3-30B-A3B, which no rule knows by name.
Json expert_row() {
  return parse_json(R"({"id": "test/1", "source": {"repo_or_doc": "doc", "path_or_issue": "page"},
    "hardware": {"gpu": "H100-80GB SXM", "gpus": 16, "gpus_per_node": 8},
    "model": {"name": "some experts", "hidden": 2048, "layers": 48, "heads": 32, "kv_heads": 4,
              "ffn_hidden": 6144, "vocab": 151936, "seq_len": 4096, "head_dim": 128,
              "qk_norm": true, "experts": 128, "top_k": 8, "expert_ffn_hidden": 768,
              "shared_expert_ffn_hidden": null, "dense_layers": 0},
    "parallel": {"tp": 2, "pp": 1, "dp": 8, "ep": 8, "etp": 1, "zero_stage": 1,
                 "sequence_parallel": true},
    "batch": {"micro": 1, "global": 64}, "precision": "bf16", "recompute": "none",
    "attention": "flash", "measured": {"step_time_s": 3.5}, "framework": "megatron-core",
    "needs": ["moe", "micro-batch unknown"], "moe": {"balanced": true}})",
                    "row.json");
}

TEST(ExpertRuns, JobsAndStrategiesAreOfTheRowsFields) {
  const PublishedTarget target = target_of(expert_row(), own_numbers());
  ASSERT_EQ(target.missing, "");
  ASSERT_TRUE(target.job.experts);
  EXPECT_EQ(target.job.experts->count, 128);
  EXPECT_EQ(target.job.experts->chosen, 8);
  EXPECT_EQ(target.job.experts->ffn_hidden, 768);
  EXPECT_EQ(target.job.experts->load, 1);
  EXPECT_EQ(target.job.head_size, 128);
  EXPECT_TRUE(target.job.qk_norm);
  EXPECT_EQ(target.job.family, Family::llama);
  EXPECT_EQ(target.strategies.at(0).ep, 8);
  EXPECT_EQ(target.strategies.at(0).experts.etp, 1);
  EXPECT_EQ(target.strategies.at(0).experts.rows_percent, 100);
}

TEST(ExpertRuns, ExpertsAreSharedAsOtherLayersWhereNothingIsStated) {
  Json row = expert_row();
  row["parallel"]["etp"] = nullptr;
  EXPECT_EQ(run_of(row).etp, 2);
  row["framework"] = "megatron-bridge";
  EXPECT_EQ(run_of(row).etp, 1);
}

// AWS's script leaves the recipe of Qwen3-30B as it is, which repeats each layer.
TEST(ExpertRuns, AwsRepeatsTheLayersOfQwenThirtyBillion) {
  Json row = expert_row();
  row["framework"] = "Megatron-Bridge";
  row["model"]["name"] = "qwen3-30b-a3b";
  row["moe"] = {{"dispatcher", "NCCL all-to-all"}, {"a2a_overlap", false}, {"balanced", true}};
  const auto strategy_of = [&](const char* document) {
    set_source(row, document);
    return target_of(row).strategies.at(0);
  };
  const Strategy of_aws = strategy_of("github:awslabs/awsome-distributed-ai@95b939cd");
  EXPECT_EQ(of_aws.recompute, Recompute::full);
  EXPECT_EQ(of_aws.precision.gradients, GradientType::f32);
  EXPECT_EQ(strategy_of("github:somebody/else").recompute, Recompute::none);
  row["moe"]["a2a_overlap"] = true;
  EXPECT_EQ(strategy_of("github:awslabs/awsome-distributed-ai@95b939cd").recompute,
            Recompute::none);
}

TEST(ExpertRuns, RoutingIsEvenWhereItIsForcedOrCapped) {
  Json row = expert_row();
  row["moe"] = {{"balanced", false}};
  EXPECT_GT(run_of(row).experts->load, 1);
  row["moe"] = {{"balanced", nullptr}, {"capacity_factor", 1.0}};
  EXPECT_EQ(run_of(row).experts->load, 1);
  EXPECT_EQ(run_of(row).experts->capacity, 1);
  row["moe"]["capacity_factor"] = 1.5;
  EXPECT_GT(run_of(row).experts->load, 1);
}

TEST(ExpertRuns, DispatchersThatSendATokenOnceAreTold) {
  Json row = expert_row();
  EXPECT_FALSE(target_of(row).framework.parallelism.sends_tokens_once_per_node);
  row["moe"]["dispatcher"] = "DeepEP";
  EXPECT_TRUE(target_of(row).framework.parallelism.sends_tokens_once_per_node);
  row["moe"]["dispatcher"] = "alltoall";
  EXPECT_FALSE(target_of(row).framework.parallelism.sends_tokens_once_per_node);
}

TEST(ExpertRuns, AnotherDispatcherIsPredictedIfItIsNamed) {
  Json row = expert_row();
  row["needs"] = {"moe", "dispatcher model"};
  EXPECT_EQ(target_of(row).missing, "dispatcher model");
  row["moe"]["dispatcher"] = "DeepEP over UCCL (EFA)";
  EXPECT_EQ(target_of(row).missing, "");
}

TEST(ExpertRuns, HostsWaitForCountsAsTheDispatcherDoes) {
  Json row = expert_row();
  const auto waits = [&] {
    const Framework framework = target_of(row).framework;
    return std::pair(framework.host.waits.before_exchange, framework.host.waits.before_products);
  };
  EXPECT_EQ(waits(), std::pair(true, true));
  EXPECT_TRUE(target_of(row).framework.parallelism.sorts_exchanged_rows);
  row["moe"]["dispatcher"] = "hybridep";
  EXPECT_EQ(waits(), std::pair(false, true));
  EXPECT_FALSE(target_of(row).framework.parallelism.sorts_exchanged_rows);
  row["cuda_graph"] = {{"impl", "full_iteration"}};
  EXPECT_EQ(waits(), std::pair(false, false));
  row.erase("cuda_graph");
  row["moe"] = {{"dispatcher", "alltoall"}, {"capacity_factor", 1.0}, {"pad_to_capacity", true}};
  EXPECT_EQ(waits(), std::pair(false, false));
}

TEST(ExpertRuns, LayersBetweenThoseWithExpertsAreDense) {
  Json row = expert_row();
  EXPECT_TRUE(target_of(row).job.experts->pattern.empty());
  row["model"]["moe_every"] = 2;
  EXPECT_EQ(target_of(row).job.experts->pattern, (std::vector{false, true}));
}

TEST(ExpertRuns, ModelsHaveTheBiasesSinksAndWindowsOfTheirConfiguration) {
  Json row = expert_row();
  EXPECT_FALSE(target_of(row).job.experts->bias);
  row["model"]["name"] = "gpt-oss-20b";
  const Job job = target_of(row).job;
  EXPECT_TRUE(job.experts->bias);
  EXPECT_TRUE(job.experts->router_bias);
  EXPECT_TRUE(job.sinks);
  EXPECT_TRUE(job.qkv_bias);
  EXPECT_EQ(job.window, 128);
  EXPECT_EQ(job.window_pattern, (std::vector{true, false}));
  EXPECT_EQ(job.layers, 48) << "sizes are those of the row";
}

TEST(ExpertRuns, TokenDropPadsRowsSoThatNoHostWaits) {
  Json row = expert_row();
  row["framework"] = "megatron-bridge";
  row["notes"] = "row of the table \"Qwen3 (tokendrop)\"";
  row["moe"] = nullptr;
  const PublishedTarget target = target_of(row);
  EXPECT_FALSE(target.framework.host.waits.before_exchange);
  EXPECT_FALSE(target.framework.host.waits.before_products);
  EXPECT_EQ(target.job.experts->capacity, 1);
  EXPECT_EQ(target.job.experts->load, 1);
}

TEST(ExpertRuns, RecipesOfDgxcHaveGraphsOnSomeDevices) {
  Json row = expert_row();
  set_source(row, "github:NVIDIA/dgxc-benchmarking@68eaf7e");
  row["framework"] = "nemo";
  row["framework_version"] = "recipe v25.05";
  row["model"]["name"] = "grok1-314b";
  row["moe"] = nullptr;
  EXPECT_EQ(target_of(row).framework.host.dispatch.graphs, Graphs::nothing);
  row["hardware"]["gpu"] = "GB200 (NVL72)";
  EXPECT_EQ(target_of(row).framework.host.dispatch.graphs, Graphs::layers);
}

TEST(ExpertRuns, NaturalRoutingIsLessEven) {
  Json row = expert_row();
  row["moe"] = {{"balanced", false}};
  EXPECT_EQ(target_of(row).job.experts->load, 1.7);
  row["moe"] = {{"balanced", false}, {"capacity_factor", 1.5}};
  EXPECT_EQ(target_of(row).job.experts->load, Experts().load) << "rows beyond the capacity drop";
  row["moe"] = {{"balanced", false}};
  row["model"]["experts"] = 8;
  EXPECT_EQ(target_of(row).job.experts->load, Experts().load) << "few experts are even";
  row["moe"] = nullptr;
  row["model"]["experts"] = 128;
  EXPECT_EQ(target_of(row).job.experts->load, Experts().load) << "nothing is stated";
}

TEST(ExpertRuns, MegatronFsdpIsAFrameworkOfItsOwn) {
  Json row = expert_row();
  row["fsdp"] = "megatron-fsdp";
  row["parallel"]["zero_stage"] = 3;
  const PublishedTarget target = target_of(row);
  EXPECT_EQ(target.framework.name, "megatron-fsdp");
  EXPECT_EQ(target.strategies.at(0).sharding_stage, 3);
  EXPECT_EQ(target.strategies.at(0).precision.gradients, GradientType::computed)
      << "NVIDIA's guide";
  row["reduce_dtype"] = "fp32";
  EXPECT_EQ(target_of(row).strategies.at(0).precision.gradients, GradientType::f32);
}

TEST(ExpertRuns, HostsOfAnInstanceHaveItsCores) {
  Json row = expert_row();
  const double preset = target_of(row).cluster.host->core_speed;
  row["hardware"]["interconnect"] = "p5.48xlarge: NVLink + 32 EFA per node";
  EXPECT_NEAR(target_of(row).cluster.host->core_speed, 3.6 / 3.8 / 1.12, 0.005);
  EXPECT_GT(preset, 0.95) << "of a DGX H100";
}

TEST(ExpertRuns, NetworksOfAwsHaveTheLatencyOfTheirGeneration) {
  Json row = expert_row();
  const Level other = target_of(row).cluster.levels.back();
  row["hardware"]["interconnect"] = "NVLink, 32 EFA per node";
  const Level old = target_of(row).cluster.levels.back();
  row["hardware"]["gpu"] = "B300";
  const Level later = target_of(row).cluster.levels.back();
  EXPECT_EQ(old.network, "efa-2020");
  EXPECT_EQ(later.network, "efa-2024");
  EXPECT_EQ(old.bandwidth, other.bandwidth) << "no rate is stated";
  EXPECT_GT(old.latency, later.latency);
  EXPECT_GT(later.latency, other.latency);
}

TEST(ExpertRuns, LatentAttentionIsRead) {
  Json row = expert_row();
  row["model"]["mla"] = {{"q_lora_rank", 1536},
                         {"kv_lora_rank", 512},
                         {"qk_nope_head_dim", 128},
                         {"qk_rope_head_dim", 64},
                         {"v_head_dim", 128}};
  row["model"]["kv_heads"] = 32;
  const PublishedTarget target = target_of(row, own_numbers());
  ASSERT_EQ(target.missing, "");
  EXPECT_EQ(target.job.latent, (Latent{1536, 512, 128, 64, 128}));
}

TEST(ExpertRuns, ChunksHaveTheirLayersAndMtpModulesAreBehindTheLast) {
  Json row = expert_row();
  row["parallel"] = {{"tp", 1}, {"pp", 2}, {"vpp", 2}, {"dp", 8}, {"ep", 8}, {"zero_stage", 1}};
  row["model"]["mtp_layers"] = 1;
  row["layers_per_stage"] = {13, 13, 13, 9};
  const PublishedTarget target = target_of(row, own_numbers());
  ASSERT_EQ(target.missing, "");
  EXPECT_EQ(target.job.mtp->depths, 1);
  EXPECT_EQ(target.strategies.at(0).pipeline.layer_split,
            (std::vector<std::int64_t>{13, 13, 13, 10}));
}

TEST(ExpertRuns, ExchangesBesideComputationAreIssuedInTurns) {
  Json row = expert_row();
  EXPECT_FALSE(target_of(row, own_numbers()).strategies.at(0).experts.overlap_exchange);
  row["moe"]["a2a_overlap"] = true;
  EXPECT_TRUE(target_of(row, own_numbers()).strategies.at(0).experts.overlap_exchange);
}

TEST(ExpertRuns, ModulesThatAreRecomputedAreRead) {
  using Modules = SetOf<RecomputedModule>;
  Json row = expert_row();
  row["recompute"] = "selective";
  const auto modules = [&](std::initializer_list<const char*> names) {
    row["recompute_modules"] = Json(std::vector<std::string>(names.begin(), names.end()));
    const PublishedTarget target = target_of(row, own_numbers());
    EXPECT_EQ(target.missing, "");
    const Strategy& strategy = target.strategies.at(0);
    EXPECT_EQ(strategy.recompute == Recompute::modules, !strategy.recomputed.modules.empty());
    return strategy.recomputed.modules;
  };
  EXPECT_EQ(modules({"layernorm", "moe_act"}),
            (Modules{RecomputedModule::norms, RecomputedModule::expert_activation}));
  // Parts of a mixture that is repeated as a whole are not named, nor attention that keeps no
  // scores.
  EXPECT_EQ(modules({"moe", "layernorm", "core_attn", "moe_act"}),
            (Modules{RecomputedModule::norms, RecomputedModule::experts}));
  EXPECT_EQ(modules({"core_attn"}), Modules{});
  row["recompute"] = "none";
  EXPECT_EQ(modules({"layernorm"}), Modules{});
}

TEST(ExpertRuns, WhatIsNotBuiltIsNamed) {
  Json without = expert_row();
  without["model"]["experts"] = nullptr;
  EXPECT_EQ(target_of(without).missing, "moe");
}

/// 6 x (layers + head) FLOPs of each token, and scores as `share` of all.
double flops_per_token(double share) {
  const double h = 2048, attention = 2 * h * 4096 + 2 * h * 512, router = h * 128;
  const double experts = 8 * 3 * h * 768, scores = share * 2 * 4096 * 4096;
  return 6 * (48 * (attention + router + experts + scores) + 151936 * h);
}

TEST(ExpertRuns, RatesGiveStepTimesWhereTheirCountIsStated) {
  Json row = expert_row();
  row["measured"] = {{"tflops_per_gpu", 200}};
  EXPECT_FALSE(run_of(row).step_time);
  row["stated"] = {{"counted_attention", "seen"}};
  const double tokens = 64 * 4096, rate = 16 * 200e12;
  ASSERT_TRUE(run_of(row).step_time);
  EXPECT_TRUE(run_of(row).step_time_derived);
  EXPECT_NEAR(run_of(row).step_time->value(), tokens * flops_per_token(0.5) / rate, 1e-6);
  row["measured"] = {{"mfu", 0.2}};
  row["stated"] = {{"counted_attention", "whole"}, {"mfu_of_tflops", 1000}};
  EXPECT_NEAR(run_of(row).step_time->value(), tokens * flops_per_token(1) / rate, 1e-6);
  row["batch"]["global"] = nullptr;
  EXPECT_FALSE(run_of(row).step_time);
}

}  // namespace
}  // namespace plimsoll
