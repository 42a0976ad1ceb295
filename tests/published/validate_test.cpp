// Published runs: how they are understood, and statistics of their errors by hand.
#include "published/validate.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "models/framework/framework.h"
#include "published/goals.h"
#include "tests/published/published_rows.h"

namespace plimsoll {
namespace {

TEST(PublishedTarget, TakesWhatTheRowStates) {
  Json run = plain_row();
  run["hardware"]["interconnect"] = "NVSwitch; 8x100 Gb/s (800 Gb/s) between nodes";
  const PublishedTarget target = target_of(run);
  ASSERT_EQ(target.missing, "");
  EXPECT_EQ(target.framework.name, "megatron-lm-2021");
  EXPECT_EQ(target.cluster.name, "a100-80gb-800gbit");
  EXPECT_DOUBLE_EQ(target.cluster.levels.back().bandwidth.value(), 12.5e9);
  EXPECT_EQ(target.job.vocab, 50432);  // a multiple of 128 x tp
  EXPECT_EQ(target.job.ffn_hidden, 4096);
  EXPECT_EQ(target.job.dropout, 0.1);  // its default
  ASSERT_EQ(target.strategies.size(), 1u);
  EXPECT_EQ(strategy_summary(target.strategies[0]).substr(0, 19), "mp=2 pp=2 dp=4 shar");
  EXPECT_EQ(target.strategies[0].recompute, Recompute::full);
}

TEST(PublishedTarget, VocabulariesArePaddedAsTheFrameworkDoes) {
  Json run = plain_row();
  run["parallel"]["tp"] = 1;
  run["parallel"]["dp"] = 8;
  EXPECT_EQ(target_of(run).job.vocab, 50304);
  // Among vTrain's times within a node, the head's is of unpadded rows where it is not split.
  set_source(run, "github:VIA-Research/vTrain");
  EXPECT_EQ(target_of(run).job.vocab, 50304);
  run["hardware"]["gpus"] = 8;
  run["parallel"]["dp"] = 4;
  EXPECT_EQ(target_of(run).job.vocab, 50257);
  run["parallel"]["tp"] = 2;
  run["parallel"]["dp"] = 2;
  EXPECT_EQ(target_of(run).job.vocab, 50432);
  run["framework"] = "LiBai (OneFlow)";  // predicted with a preset of Megatron-LM
  EXPECT_EQ(target_of(run).framework.name, "megatron-lm-2021");
  EXPECT_EQ(target_of(run).job.vocab, 50257);
}

TEST(PublishedTarget, RanksOfALayerHandOnAPartEach) {
  Json run = plain_row();
  EXPECT_TRUE(target_of(run).strategies.at(0).pipeline.split_boundary);
  run["parallel"]["sequence_parallel"] = true;  // what they hand on is split already
  const PublishedTarget split = target_of(run);
  EXPECT_EQ(split.framework.name, "megatron-lm-2022");
  EXPECT_FALSE(split.strategies.at(0).pipeline.split_boundary);
  run = plain_row();
  EXPECT_EQ(target_of(run).framework.name, "megatron-lm-2021");
  set_source(run, "github:calculon-ai/calculon@caa4b11f (quotes arXiv 2205.05198 Table 5)");
  EXPECT_EQ(target_of(run).framework.name, "megatron-lm-2022");
  run = plain_row();
  run["attention"] = "flash";
  const PublishedTarget today = target_of(run);
  EXPECT_EQ(today.framework.name, "megatron-lm");
  EXPECT_EQ(today.job.dropout, 0);
  EXPECT_FALSE(today.strategies.at(0).pipeline.split_boundary);
  run = plain_row();
  run["framework"] = "OneFlow-GPT";
  const PublishedTarget other = target_of(run);
  EXPECT_EQ(other.framework.name, "megatron-lm-2021");
  EXPECT_FALSE(other.strategies.at(0).pipeline.split_boundary);
  run = plain_row();
  run["parallel"]["tp"] = 1;
  run["parallel"]["dp"] = 8;
  EXPECT_FALSE(target_of(run).strategies.at(0).pipeline.split_boundary);
}

TEST(PublishedTarget, FullyShardedDataParallelIsStageThree) {
  Json run = plain_row();
  run["framework"] = "pytorch-fsdp";
  run["attention"] = "flash";
  run["recompute"] = "none";
  run["parallel"]["tp"] = run["parallel"]["pp"] = 1;
  run["parallel"]["dp"] = 16;
  run["parallel"]["zero_stage"] = 3;
  const PublishedTarget target = target_of(run);
  ASSERT_EQ(target.missing, "");
  EXPECT_EQ(target.strategies[0].sharding_degree, 16);
  EXPECT_EQ(target.strategies[0].sharding_stage, 3);
  EXPECT_EQ(target.framework.name, "pytorch-fsdp");
}

TEST(PublishedTarget, MegatronDeepSpeedWithAndWithoutAZeroStage) {
  Json run = plain_row();
  run["framework"] = "megatron-deepspeed";
  const PublishedTarget plain = target_of(run);
  ASSERT_EQ(plain.missing, "");
  EXPECT_EQ(plain.framework.name, "megatron-deepspeed");
  EXPECT_EQ(plain.job.dropout, 0.1);
  EXPECT_EQ(plain.strategies[0].sharding_degree, 1);
  EXPECT_TRUE(plain.strategies[0].pipeline.split_boundary);
  EXPECT_EQ(plain.strategies[0].precision.gradients, GradientType::computed);
  run["precision"] = "fp16 (fp32 all-reduce per ds_config.json)";
  EXPECT_EQ(target_of(run).strategies[0].precision.gradients, GradientType::f32);
  run = plain_row();
  run["framework"] = "megatron-deepspeed";
  run["parallel"]["zero_stage"] = 1;
  const PublishedTarget sharded = target_of(run);
  ASSERT_EQ(sharded.missing, "");
  EXPECT_EQ(sharded.framework.name, "megatron-deepspeed");
  EXPECT_EQ(sharded.strategies[0].sharding_degree, 4);
  EXPECT_TRUE(sharded.strategies[0].pipeline.split_boundary);
  // Summed whole in fp16: the bytes of a scatter in f32.
  EXPECT_EQ(sharded.strategies[0].precision.gradients, GradientType::f32);
}

TEST(PublishedTarget, MegatronDeepSpeedWithMegatronsOwnLoop) {
  Json run = plain_row();
  run["framework"] = "megatron-deepspeed";
  set_source(run, "github:VIA-Research/vTrain");
  const PublishedTarget own = target_of(run);
  EXPECT_EQ(own.framework.name, "megatron-lm-2021");
  EXPECT_EQ(own.job.dropout, 0);
  run["parallel"]["zero_stage"] = 1;  // Megatron-LM of that time had none
  EXPECT_EQ(target_of(run).framework.name, "megatron-deepspeed");
}

TEST(PublishedTarget, TrialsOfAmpAreCutAsTheirScriptSays) {
  Json run = plain_row();
  run["framework"] = "megatron-deepspeed";
  set_source(run, "github:MccRee177/AMP@72eeea45");
  run["recompute"] = "unknown";
  run["partition"] = {0, 3, 10};  // an embedding and a transposition, 4 layers, 4 parts after them
  const PublishedTarget target = target_of(run);
  ASSERT_EQ(target.missing, "");
  EXPECT_EQ(target.framework.name, "megatron-deepspeed-2020");
  EXPECT_EQ(target.job.dropout, 0.1);
  EXPECT_TRUE(target.strategies.at(0).pipeline.split_boundary);
  ASSERT_EQ(target.strategies.size(), 1u);
  EXPECT_EQ(target.strategies[0].recompute, Recompute::none);
  EXPECT_EQ(target.strategies[0].pipeline.layer_split, (std::vector<std::int64_t>{1, 3}));
  run["partition"] = {0, 2, 10};
  const PublishedTarget empty = target_of(run);  // the first stage has the embedding alone
  ASSERT_EQ(empty.missing, "");
  EXPECT_EQ(empty.strategies.at(0).pipeline.layer_split, (std::vector<std::int64_t>{0, 4}));
  for (const std::vector<std::int64_t>& wrong :
       {std::vector<std::int64_t>{0, 10}, {0, 3, 9}, {1, 3, 10}, {0, 11, 10}}) {
    run["partition"] = wrong;
    EXPECT_EQ(target_of(run).missing, "partition: a cut of the model's parts into pp stages");
  }
  run["partition"] = nullptr;  // as evenly as possible
  EXPECT_TRUE(target_of(run).strategies.at(0).pipeline.layer_split.empty());
}

TEST(PublishedTarget, BridgeOverlapsWhatTensorParallelRanksExchange) {
  Json run = plain_row();
  run["framework"] = "megatron-bridge";
  const PublishedTarget bridge = target_of(run);
  ASSERT_EQ(bridge.missing, "");
  EXPECT_EQ(bridge.framework.name, "megatron-lm");
  EXPECT_TRUE(bridge.framework.parallelism.overlap.async_tensor_parallel);
  EXPECT_TRUE(bridge.strategies.at(0).tokens.sequence_parallel);
  run["framework"] = "nemo";
  EXPECT_FALSE(target_of(run).framework.parallelism.overlap.async_tensor_parallel);
  run["framework"] = "megatron-bridge";
  run["parallel"]["tp"] = 1;
  run["parallel"]["dp"] = 8;
  EXPECT_FALSE(target_of(run).framework.parallelism.overlap.async_tensor_parallel);
}

TEST(PublishedTarget, ExamplesOfBertHaveTheKernelsOfTheirCode) {
  Json run = plain_row();
  run["framework"] = "pytorch-ddp";
  run["model"]["name"] = "BERT-Large pretraining";
  set_source(run, "github:NVIDIA/DeepLearningExamples@729963dd");
  run["parallel"]["tp"] = run["parallel"]["pp"] = 1;
  run["parallel"]["dp"] = 16;
  const PublishedTarget target = target_of(run);
  ASSERT_EQ(target.missing, "");
  EXPECT_EQ(target.framework.name, "megatron-lm-2021");
  EXPECT_TRUE(target.framework.kernels.attention.separate_qkv);
  EXPECT_TRUE(target.framework.kernels.bias.in_matmul);
  EXPECT_FALSE(target.framework.kernels.bias.in_add);
  EXPECT_EQ(target.job.dropout, 0.1);
  run["model"]["name"] = "GPT-2";
  EXPECT_FALSE(target_of(run).framework.kernels.attention.separate_qkv);
}

TEST(PublishedTarget, EnginesThatShardAreTakenForWhatTheyAre) {
  Json run = plain_row();
  run["parallel"]["tp"] = run["parallel"]["pp"] = 1;
  run["parallel"]["dp"] = 16;
  run["parallel"]["zero_stage"] = 3;
  const auto name_of = [&](const std::string& framework) {
    run["framework"] = framework;
    const PublishedTarget target = target_of(run);
    EXPECT_EQ(target.missing, "") << framework;
    EXPECT_EQ(target.strategies.at(0).sharding_stage, 3) << framework;
    return target.framework.name;
  };
  EXPECT_EQ(name_of("DeepSpeed 0.9"), "megatron-deepspeed");
  EXPECT_EQ(target_of(run).job.dropout, 0);  // BigScience's only
  EXPECT_EQ(name_of("Colossal-AI"), "pytorch-fsdp");
  EXPECT_EQ(name_of("PaddleNLP"), "paddlenlp");
  EXPECT_EQ(name_of("megatron-lm"), "megatron-lm-2022");
  run["framework"] = "DeepSpeed";
  EXPECT_FALSE(target_of(run).framework.kernels.attention.flash);
  run["attention"] = "flash";
  EXPECT_TRUE(target_of(run).framework.kernels.attention.flash);
}

TEST(PublishedTarget, PublicModelsWithGatesHaveThreeMatrices) {
  Json run = plain_row();
  for (const char* name : {"Llama 2 7b", "Mistral-7B", "Qwen2-7B", "gemma-7b"}) {
    run["model"]["name"] = name;
    const Job job = target_of(run).job;
    EXPECT_EQ(job.family, Family::llama) << name;
    EXPECT_EQ(job.tied_embeddings, run["model"]["name"] == "gemma-7b") << name;
  }
  run["model"]["name"] = "GPT-3";
  EXPECT_EQ(target_of(run).job.family, Family::gpt);
}

TEST(PublishedTarget, SquaredReluIsTheArchitectureItCameWith) {
  Json run = plain_row();
  run["model"]["name"] = "nemotron4-15b";
  run["model"]["activation"] = "squared-relu";
  const Job job = target_of(run).job;
  EXPECT_EQ(job.family, Family::llama);
  EXPECT_EQ(job.activation, Activation::squared_relu);
  EXPECT_EQ(job.norm, NormKind::layer_norm);
  EXPECT_FALSE(job.tied_embeddings);
}

TEST(PublishedTarget, TorchtitanCompiledAndNotShareACalibration) {
  Json run = plain_row();
  run["framework"] = "torchtitan";
  run["model"]["name"] = "Llama 3";
  run["precision"] = "bf16";
  run["attention"] = "flash";
  run["parallel"]["tp"] = run["parallel"]["pp"] = 1;
  run["parallel"]["dp"] = 16;
  run["parallel"]["zero_stage"] = 3;
  const PublishedTarget eager = target_of(run);
  run["compile"] = true;
  const PublishedTarget compiled = target_of(run);
  ASSERT_EQ(eager.missing + compiled.missing, "");
  EXPECT_EQ(eager.framework.name, "torchtitan");
  EXPECT_EQ(compiled.framework.name, "torchtitan-compiled");
  EXPECT_TRUE(compiled.framework.memory.allocator.expandable_segments);
  EXPECT_EQ(calibrated_as(eager.framework), "torchtitan");
  EXPECT_EQ(calibrated_as(compiled.framework), "torchtitan");
}

Json llama_shards() {
  Json run = plain_row();
  run["framework"] = nullptr;
  run["model"]["name"] = "Llama 2 7b";
  run["precision"] = "bf16";
  run["attention"] = "flash";
  run["recompute"] = "none";
  run["model"]["vocab"] = nullptr;
  run["parallel"]["tp"] = run["parallel"]["pp"] = 1;
  run["parallel"]["dp"] = 16;
  run["parallel"]["zero_stage"] = 3;
  return run;
}

TEST(PublishedTarget, VocabulariesOfPublicModelsAreKnown) {
  Json run = llama_shards();
  run["needs"] = {"vocabulary unknown"};
  const PublishedTarget known = target_of(run);
  ASSERT_EQ(known.missing, "");
  EXPECT_EQ(known.job.vocab, 32000);
  EXPECT_EQ(known.framework.name, "pytorch-fsdp");
  run["model"]["name"] = "Llama of ours";
  EXPECT_EQ(target_of(run).missing, "vocabulary unknown");
  const auto vocabulary = [](const char* model) {
    Json row = plain_row();
    row["model"]["name"] = model;
    row["model"]["vocab"] = nullptr;
    return stated(row)["model"]["vocab"];
  };
  EXPECT_EQ(vocabulary("BERT-Large SQuAD fine-tune"), 30522);
  EXPECT_EQ(vocabulary("Llama-3.1 405B"), 128256);
  EXPECT_EQ(vocabulary("mixture"), nullptr);
  EXPECT_EQ(vocabulary("Qwen2-72B"), 152064);
  EXPECT_EQ(vocabulary("NEMOTRON4-340B"), 256000);
  EXPECT_EQ(vocabulary("Falcon-40B"), 65024);
  EXPECT_EQ(vocabulary("Falcon3-10B"), nullptr);
  EXPECT_EQ(vocabulary("Llama-Nemotron-Super"), nullptr);
}

TEST(PublishedTarget, HybridShardsLieWithinANode) {
  Json run = llama_shards();
  run["sharding"] = "HSDP";
  const PublishedTarget target = target_of(run);
  ASSERT_EQ(target.missing, "");
  EXPECT_EQ(target.strategies[0].sharding_degree, 8);
  EXPECT_EQ(target.strategies[0].dp, 2);
}

TEST(PublishedTarget, ShardsAreScatteredInTheTypeThatTheRunStates) {
  Json run = llama_shards();
  run["reduce_dtype"] = "fp32";
  EXPECT_EQ(target_of(run).strategies.at(0).precision.gradients, GradientType::f32);
  run["reduce_dtype"] = "bf16";
  EXPECT_EQ(target_of(run).strategies.at(0).precision.gradients, GradientType::computed);
  run["reduce_dtype"] = nullptr;
  set_source(run, "github:foundation-model-stack/fms-fsdp@1");
  EXPECT_EQ(target_of(run).strategies.at(0).precision.gradients, GradientType::computed);
}

TEST(PublishedTarget, SelectiveRecomputeOfShardsIsOfSomeLayers) {
  Json run = llama_shards();
  run["recompute"] = "selective";
  const PublishedTarget unsaid = target_of(run);
  ASSERT_EQ(unsaid.missing, "");
  ASSERT_EQ(unsaid.strategies.size(), 4u);  // every 4th, 3rd, 2nd layer; all
  EXPECT_EQ(unsaid.strategies[0].recomputed.list, std::vector<std::int64_t>{0});
  EXPECT_EQ(unsaid.strategies[3].recomputed.list.size(), 4u);
  run["framework"] = "torchtitan";
  EXPECT_EQ(target_of(run).strategies.at(0).recompute, Recompute::per_op);
  run["recompute"] = "selective (layer)";
  EXPECT_EQ(target_of(run).strategies.at(0).recomputed.list, (std::vector<std::int64_t>{0, 2}));
  run["async_tp"] = true;
  EXPECT_EQ(target_of(run).framework.name, "torchtitan-async-tp");
}

TEST(PublishedTarget, TestsOfMegatronSayMoreByTheirNames) {
  Json run = plain_row();
  set_source(run, "github:NVIDIA/Megatron-LM@d98e8a64", "tests/functional_tests/test_cases/gpt/x");
  run["framework"] = "megatron-core";
  run["precision"] = "bf16";
  run["attention"] = "unknown";
  run["recompute"] = "none";
  run["model"]["layers"] = 12;
  run["parallel"]["tp"] = 1;
  run["parallel"]["pp"] = 4;
  EXPECT_EQ(target_of(run).framework.name, "megatron-core-deterministic");
  run["model"]["name"] = "gpt/gpt3_mcore_te_tp1_pp4_vp1_uneven_pipeline";
  EXPECT_EQ(target_of(run).strategies.at(0).pipeline.layer_split, std::vector({2L, 4L, 4L, 2L}));
  run["model"]["name"] = "gpt/gpt3_7b_tp1_pp4_memory_speed";
  run["model"]["kv_heads"] = 4;
  const PublishedTarget fast = target_of(run);
  ASSERT_EQ(fast.missing, "");
  EXPECT_EQ(fast.framework.name, "megatron-core-deterministic");
  EXPECT_TRUE(fast.framework.kernels.attention.flash);
  EXPECT_FALSE(fast.framework.kernels.products.add_gradients);
  EXPECT_EQ(fast.framework.memory.process.workspace, Bytes((32 + 32 + 4) << 20));
  EXPECT_EQ(fast.job.kv_heads, 4);
  run["model"]["name"] = "gpt/gpt3_weekly_current_scaling_native_fp8";
  run["hardware"]["gpu"] = "H100";
  const PublishedTarget narrow = target_of(run);
  ASSERT_EQ(narrow.missing, "");
  EXPECT_EQ(narrow.framework.name, "megatron-lm");
  EXPECT_EQ(narrow.strategies.at(0).precision.fp8, Fp8::current);
  EXPECT_EQ(narrow.framework.memory.loss, LossMemory::in_place);
  EXPECT_EQ(narrow.framework.memory.process.workspace, Bytes(96 << 20));
  run["model"]["name"] = "gpt/gpt3_mcore_te_tp2_pp2_cp2_nondeterministic";
  run["hardware"]["gpu"] = "A100-80GB";
  const PublishedTarget before_hopper = target_of(run);
  ASSERT_EQ(before_hopper.missing, "");
  EXPECT_EQ(before_hopper.framework.memory.process.workspace, Bytes(20 * 1024 * 1024 + 256 * 1024));
}

TEST(PublishedTarget, WithoutABatchARunOutOfMemoryHasTheLeast) {
  Json run = plain_row();
  run["batch"]["micro"] = nullptr;
  run["batch"]["global"] = nullptr;
  EXPECT_EQ(target_of(run).missing, "global batch");
  run["oom"] = true;
  const PublishedTarget target = target_of(run);
  ASSERT_EQ(target.missing, "");
  ASSERT_EQ(target.strategies.size(), 1u);
  EXPECT_EQ(target.strategies[0].micro_batch, 1);
  EXPECT_EQ(target.job.global_batch, 4);
}

TEST(PublishedTarget, AlpaShardsGradientsToo) {
  Json run = plain_row();
  run["framework"] = "alpa";
  run["recompute"] = "none";
  run["parallel"]["tp"] = run["parallel"]["pp"] = 1;
  run["parallel"]["dp"] = 16;
  run["parallel"]["zero_stage"] = 2;
  const PublishedTarget target = target_of(run);
  ASSERT_EQ(target.missing, "");
  EXPECT_EQ(target.strategies.at(0).sharding_stage, 2);
}

TEST(PublishedTarget, SaysWhatIsMissing) {
  const auto missing = [](auto change) {
    Json row = plain_row();
    change(row);
    return target_of(row).missing;
  };
  EXPECT_EQ(missing([](Json& row) { row["model"]["vocab"] = nullptr; }), "vocabulary");
  EXPECT_EQ(missing([](Json& row) { row["hardware"]["gpu"] = "unknown"; }), "gpu unknown");
  EXPECT_EQ(missing([](Json& row) { row["precision"] = "int8"; }), "precision int8");
  EXPECT_EQ(missing([](Json& row) { row["needs"] = {"moe"}; }), "moe");
  EXPECT_EQ(missing([](Json& row) { row["model"]["name"] = "T5 3B"; }), "encoder-decoder");
  EXPECT_NE(missing([](Json& row) { row["parallel"]["dp"] = 3; }), "");
}

TEST(Validate, ConfigurationsOfRunsOverNodesStateTheirRecompute) {
  Json run = plain_row();
  set_source(run, "github:VIA-Research/vTrain");
  run["notes"] = "precision and recompute taken from configs, not printed with the measurement";
  EXPECT_EQ(run_of(run).recompute, StatedRecompute::full);
  run["hardware"]["gpus"] = 8;  // the times within a node contradict the configuration
  EXPECT_EQ(run_of(run).recompute, StatedRecompute::unknown);
}

TEST(Validate, UnknownMicroBatchIsTheFastestThatFits) {
  Json run = plain_row();
  run["batch"]["micro"] = nullptr;
  const PublishedTarget target = target_of(run);
  EXPECT_EQ(target.strategies.size(), 4u);  // 1, 2, 4, 8 divide 32 / 4
  const RunPrediction best = predict_published(target);
  for (const Strategy& strategy : target.strategies) {
    PublishedTarget one = target;
    one.strategies = {strategy};
    EXPECT_LE(best.step_time, predict_published(one).step_time);
  }
}

TEST(Validate, StatisticsByHand) {
  EXPECT_FALSE(statistics({}).has_value());
  const auto found = statistics({{1.1, 1.0}, {1.8, 2.0}, {3.0, 3.0}});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->count, 3u);
  EXPECT_NEAR(found->mean_signed, 0, 1e-12);
  EXPECT_NEAR(found->mean_abs, 0.2 / 3, 1e-12);
  EXPECT_NEAR(found->median_abs, 0.1, 1e-12);
  EXPECT_NEAR(found->max_abs, 0.1, 1e-12);
  EXPECT_NEAR(found->spearman.value(), 1, 1e-12);
  // Ranks 0 1 2 3 against 1 0 2.5 2.5: sums of products of deviations 4 / sqrt(5 x 4.5).
  const auto tied = statistics({{1, 2}, {2, 1}, {3, 5}, {4, 5}});
  EXPECT_NEAR(tied->spearman.value(), 3.5 / std::sqrt(5 * 4.5), 1e-12);
}

TEST(Validate, FamiliesCountWhatRanAndWhatWasSkipped) {
  Json skipped = plain_row(), oom = plain_row();
  skipped["model"]["vocab"] = nullptr;
  oom["oom"] = true;
  const std::vector<PublishedRun> runs = {run_of(plain_row()), run_of(skipped), run_of(oom)};
  const std::array families = {validate("family", runs)};
  const Json json = parse_json(validation_json(families, {}), "validation");
  EXPECT_EQ(json["families"][0]["rows"], 3);
  EXPECT_EQ(json["families"][0]["skipped"], 1);
  EXPECT_EQ(json["families"][0]["time"]["count"], 1);
  EXPECT_TRUE(json["families"][0]["memory_device"].is_null());
  EXPECT_EQ(json["rows"][1]["missing"], "vocabulary");
  EXPECT_EQ(json["oom"]["rows"], 1);
  EXPECT_EQ(json["oom"]["predicted_oom"], 0);
  const std::string text = validation_text(families);
  EXPECT_NE(text.find("family: 3 rows, 1 skipped"), std::string::npos);
  const std::string taken = families[0].runs[0].predicted->cluster + ", " +
                            families[0].runs[0].predicted->framework + ", ";
  EXPECT_NE(text.find("taken for            2 rows  " + taken), std::string::npos) << text;
  EXPECT_NE(text.find("skipped              1 row   vocabulary"), std::string::npos) << text;
}

TEST(Validate, RowsSayWhatTheyWereTakenFor) {
  std::vector<PublishedRun> runs(9, run_of(plain_row()));
  for (std::size_t i = 0; i < runs.size(); ++i) runs[i].id = "row " + std::to_string(i);
  const auto lines = [](std::span<const PublishedRun> some, bool each) {
    const std::array families = {validate("family", some)};
    return validation_text(families, each);
  };
  const ValidatedFamily family = validate("family", runs);
  const RunPrediction& predicted = *family.runs[8].predicted;
  const std::string row = "  row 8: " + predicted.cluster + ", " + predicted.framework + ", ";
  EXPECT_EQ(lines(runs, false).find(row), std::string::npos);
  const std::string all = lines(runs, true);
  EXPECT_NE(all.find(row), std::string::npos) << all;
  EXPECT_NE(all.find(strategy_summary(predicted.strategy)), std::string::npos) << all;
  EXPECT_NE(lines(std::span(runs).last(1), false).find(row), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
