// An adapter_config.json of PEFT with a model becomes a job with adapters, and so does a file of
// Megatron-Bridge.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "graph/graph.h"
#include "interop/imports/imported.h"
#include "models/job/job_words.h"
#include "models/presets/preset_names.h"
#include "tests/interop/changed_text.h"

namespace plimsoll {
namespace {

const std::string kConfig = R"({
  "alpha_pattern": {},
  "auto_mapping": null,
  "base_model_name_or_path": "ours/8b",
  "bias": "none",
  "exclude_modules": null,
  "fan_in_fan_out": false,
  "inference_mode": true,
  "init_lora_weights": true,
  "layers_to_transform": null,
  "loftq_config": {},
  "lora_alpha": 32,
  "lora_dropout": 0.05,
  "modules_to_save": null,
  "peft_type": "LORA",
  "r": 16,
  "rank_pattern": {},
  "target_modules": ["q_proj", "v_proj"],
  "task_type": "CAUSAL_LM",
  "use_dora": false,
  "use_rslora": false
})";

const std::string kTargets = R"(["q_proj", "v_proj"])";

Imported import_for(const std::string& text, const char* model = "llama3-8b") {
  ImportGiven given;
  given.job = read_job(model);
  return import_text(text, "adapter_config.json", given);
}

std::int64_t trained_of(const std::string& text, const char* model = "llama3-8b") {
  return trained_parameter_count(build_forward(*import_for(text, model).job, 1));
}

std::string adapter_refusal(const std::string& text, const char* model = "llama3-8b") {
  try {
    import_for(text, model);
    return "read";
  } catch (const InputError& error) {
    return error.what();
  }
}

std::string with_targets(const std::string& targets) { return with(kConfig, kTargets, targets); }

/// Refuses at the line of a key, with these words.
void expect_refused(const std::string& text, const std::string& place, const std::string& words,
                    const char* model = "llama3-8b") {
  const std::string refusal = adapter_refusal(text, model);
  EXPECT_NE(refusal.find(place), std::string::npos) << refusal;
  EXPECT_NE(refusal.find(words), std::string::npos) << refusal;
}

TEST(AdapterConfig, CountsAreThoseOfTheLibrary) {
  // print_trainable_parameters() of q_proj and v_proj with r 16 on Llama-3 8B: of each of 32
  // layers, 16 (4096 + 4096) and 16 (4096 + 1024).
  EXPECT_EQ(trained_of(kConfig), 6'815'744);
  EXPECT_EQ(trained_of(kConfig), 32 * (16 * (4096 + 4096) + 16 * (4096 + 1024)));
  EXPECT_EQ(trained_of(with_targets("\"all-linear\"")), 41'943'040);
  // GPT-2 joins query, key and value: 12 layers, 16 (768 + 2304), 16 (768 + 768), and twice
  // 16 (768 + 3072).
  EXPECT_EQ(trained_of(with_targets("\"all-linear\""), "gpt2-small"), 2'359'296);
  EXPECT_EQ(trained_of(with_targets(R"(["c_attn", "c_proj", "c_fc"])"), "gpt2-small"), 2'359'296);
}

TEST(AdapterConfig, AllLinearLayersAreThoseThatTheModelHas) {
  const std::string folder = PLIMSOLL_SOURCE_DIR "/tests/interop/data/";
  const auto trained = [&](const char* config) {
    const std::string text = read_file(folder + config);
    ImportGiven given;
    given.job = import_text(text, config).job;
    given.joined = joined_products(text);
    const Imported imported =
        import_text(with_targets("\"all-linear\""), "adapter_config.json", given);
    return trained_parameter_count(build_forward(*imported.job, 1));
  };
  // Phi-3 mini joins query, key and value, 3072 to 9216, and gate and up, 3072 to 16384.
  EXPECT_EQ(trained("phi-3-mini-128k.json"),
            32 * 16 * ((3072 + 9216) + 2 * 3072 + (3072 + 16384) + (8192 + 3072)));
  EXPECT_EQ(trained("llama-3-8b.json"), 41'943'040);
  // GPT-NeoX-20B: 44 layers, 6144 to 18432, and an MLP of 24576 without gates.
  EXPECT_EQ(trained("gpt-neox-20b.json"),
            44 * 16 * ((6144 + 18432) + 2 * 6144 + 2 * (6144 + 24576)));
  EXPECT_TRUE(joined_products(kConfig).empty());
}

TEST(AdapterConfig, StatesTheAdaptersOfTheModelsJob) {
  const Imported imported = import_for(kConfig);
  const Job& job = *imported.job;
  EXPECT_EQ(job.hidden, 4096);
  EXPECT_EQ(job.adapters->rank, 16);
  EXPECT_EQ(job.adapters->scale, 2);
  EXPECT_EQ(job.adapters->dropout, 0.05);
  const SetOf<AdapterTarget> targets = {AdapterTarget::query, AdapterTarget::value};
  EXPECT_EQ(job.adapters->targets, targets);
  EXPECT_TRUE(job.adapters->trained.empty());
  EXPECT_EQ(job.frozen_weights, FrozenWeights::computed);
  EXPECT_FALSE(imported.strategy);
  EXPECT_TRUE(imported.unknown.empty());
}

TEST(AdapterConfig, RsLoraDividesByTheRoot) {
  const std::string text = with(kConfig, "\"use_rslora\": false", "\"use_rslora\": true");
  EXPECT_EQ(import_for(text).job->adapters->scale, 8);  // 32 / sqrt(16)
  // The library's defaults are r 8 and alpha 8.
  const std::string usual = with(with(text, "  \"r\": 16,\n", ""), "  \"lora_alpha\": 32,\n", "");
  EXPECT_EQ(import_for(usual).job->adapters->rank, 8);
  EXPECT_NEAR(import_for(usual).job->adapters->scale, std::sqrt(8.0), 1e-12);
}

TEST(AdapterConfig, NamesOfModulesAreThoseOfManyModels) {
  const auto targets = [&](const std::string& names, const char* model) {
    return import_for(with_targets(names), model).job->adapters->targets;
  };
  using enum AdapterTarget;
  using Targets = SetOf<AdapterTarget>;
  EXPECT_EQ(targets(R"(["qkv_proj", "o_proj", "gate_up_proj", "down_proj"])", "phi3-mini"),
            (Targets{qkv, out, gate_up, down}));
  EXPECT_EQ(
      targets(R"(["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"])", "falcon-7b"),
      (Targets{qkv, out, up, down}));
  EXPECT_EQ(targets(R"(["fc1", "fc2"])", "phi2"), (Targets{up, down}));
  EXPECT_EQ(targets(R"(["attn.c_proj"])", "gpt2-small"), Targets{out});
  EXPECT_EQ(targets(R"(["query", "value"])", "bert-base"), (Targets{query, value}));
  EXPECT_EQ(targets(R"(["self_attn.k_proj", "mlp.up_proj"])", "llama3-8b"), (Targets{key, up}));
  EXPECT_EQ(targets(R"x(".*\\.(q_proj|k_proj)")x", "llama3-8b"), (Targets{query, key}));
  EXPECT_EQ(targets(R"("^.*(?:q_proj|k_proj)$")", "llama3-8b"), (Targets{query, key}));
  EXPECT_EQ(targets(R"(["q_proj", "o_proj"])", "mixtral-8x7b"), (Targets{query, out}));
}

// Names of modules of transformers' DeepseekV3Attention and of Megatron-Core's MLASelfAttention.
// MiniCPM3-4B, by hand: 62 layers, 2560 to 768 and on to 40 heads of 96, 2560 to 256 + 32, 256 to
// 40 heads of 128, 40 heads of 64 to 2560, and an MLP of 6400.
TEST(AdapterConfig, LatentAttentionHasAdapters) {
  using enum AdapterTarget;
  using Targets = SetOf<AdapterTarget>;
  const auto targets = [&](const std::string& names, const char* model) {
    return import_for(with_targets(names), model).job->adapters->targets;
  };
  EXPECT_EQ(targets(R"(["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"])",
                    "deepseek-v3"),
            (Targets{query_down, query_up, kv_down, kv_up, out}));
  EXPECT_EQ(targets(R"(["self_attn.q_proj", "kv_b_proj"])", "deepseek-v2-lite"),
            (Targets{query, kv_up}));
  EXPECT_EQ(targets(R"(["linear_q_down_proj", "linear_q_up_proj", "linear_kv_down_proj"])",
                    "deepseek-v3"),
            (Targets{query_down, query_up, kv_down}));
  EXPECT_EQ(targets(R"(["linear_q_proj", "linear_kv_up_proj"])", "deepseek-v2-lite"),
            (Targets{query, kv_up}));
  ImportGiven given;
  given.job = read_job("llama3-8b");
  Job& job = *given.job;
  job.layers = 62, job.hidden = 2560, job.ffn_hidden = 6400;
  job.heads = job.kv_heads = 40;
  job.latent = Latent{768, 256, 64, 32, 64};
  const Imported all = import_text(with_targets("\"all-linear\""), "adapter_config.json", given);
  EXPECT_EQ(trained_parameter_count(build_forward(*all.job, 1)),
            62 * 16 *
                ((2560 + 768) + (768 + 40 * 96) + (2560 + 288) + (256 + 40 * 128) +
                 (40 * 64 + 2560) + 3 * (2560 + 6400)));
}

TEST(AdapterConfig, WholeModulesAreTrained) {
  const std::string text = with(kConfig, "\"modules_to_save\": null",
                                R"("modules_to_save": ["embed_tokens", "lm_head"])");
  const std::vector<std::string> trained = {"embedding.word", "head.weight"};
  EXPECT_EQ(import_for(text).job->adapters->trained, trained);
  EXPECT_EQ(trained_of(text), 6'815'744 + 2 * std::int64_t{128256} * 4096);
}

TEST(AdapterConfig, TheModelsNameMayBeAPreset) {
  const Imported imported =
      import_text(with(kConfig, "ours/8b", "meta-llama/Llama-3.1-8B"), "adapter_config.json");
  EXPECT_EQ(imported.job->name, "llama3-8b");
  EXPECT_EQ(trained_parameter_count(build_forward(*imported.job, 1)), 6'815'744);
  EXPECT_FALSE(import_text(kConfig, "adapter_config.json").job);
}

TEST(AdapterConfig, WhatAJobCannotStateIsRefusedAtItsLine) {
  const auto refused = [](const char* piece, const char* other, const char* place,
                          const char* words) {
    expect_refused(with(kConfig, piece, other), place, words);
  };
  refused("\"use_dora\": false", "\"use_dora\": true", "line 20: use_dora true", "DoRA");
  refused("\"LORA\"", "\"IA3\"", "line 15: peft_type IA3", "LORA");
  refused("\"bias\": \"none\"", "\"bias\": \"all\"", "line 5: bias all", "none is required");
  refused("\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 4}",
          "line 17: rank_pattern.q_proj 4", "one rank");
  refused("\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q_proj\": 4}",
          "line 2: alpha_pattern.q_proj 4", "one scale");
  refused("\"layers_to_transform\": null", "\"layers_to_transform\": [0, 1]",
          "line 10: layers_to_transform 0 1", "all layers");
  refused("\"exclude_modules\": null", "\"exclude_modules\": [\"q_proj\"]",
          "line 6: exclude_modules q_proj", "all layers");
  refused("\"modules_to_save\": null", "\"modules_to_save\": [\"score\"]",
          "line 14: modules_to_save score", "head of a language model");
  refused("\"r\": 16", "\"r\": \"many\"", "line 16: r many", "a number is required");
  refused("\"r\": 16", "\"r\": 0", "r 0 (line 16)", "from 1");
  refused(kTargets.c_str(), "[\"x_proj\"]", "line 18: target_modules x_proj", "q_proj");
  refused(kTargets.c_str(), R"(["q_proj", "x_proj"])", "line 18: target_modules q_proj x_proj",
          "x_proj is no module");
  refused(kTargets.c_str(), "[\"lm_head\"]", "line 18: target_modules lm_head", "the head");
  refused(kTargets.c_str(), "[\"gate_up_proj\", \"up_proj\"]", "up_proj (line 18)",
          "exclude gate_up");
  refused(kTargets.c_str(), R"(".*layers\\.[0-9]\\.q_proj")", "line 18: target_modules",
          "leave out layers");
  refused(kTargets.c_str(), "null", "target_modules is required", "");
}

TEST(AdapterConfig, ModelsWithoutSuchAdaptersAreRefused) {
  const std::string all = with_targets("\"all-linear\"");
  expect_refused(all, "line 18: target_modules all-linear", "routers", "mixtral-8x7b");
  expect_refused(all, "line 18: target_modules all-linear", "routers", "deepseek-v2-lite");
  expect_refused(all, "line 18: target_modules all-linear", "behind its layers", "bert-base");
  expect_refused(with_targets("[\"gate_proj\"]"), "target_modules gate_proj (line 18)",
                 "adapters together", "mixtral-8x7b");
  expect_refused(with_targets("[\"q_a_proj\"]"), "target_modules q_a_proj (line 18)",
                 "queries have no latent", "deepseek-v2-lite");
  expect_refused(with_targets("[\"q_proj\"]"), "target_modules q_proj (line 18)",
                 "query_down and query_up", "deepseek-v3");
  expect_refused(with_targets("[\"kv_b_proj\"]"), "target_modules kv_b_proj (line 18)",
                 "keys and values have no latent", "llama3-8b");
}

TEST(AdapterConfig, UnknownKeysAreNamed) {
  const Imported imported = import_for(with(kConfig, "\"fan_in_fan_out\"", "\"fans_in_and_out\""));
  const std::vector<UnknownFlag> unknown = {{"fans_in_and_out", 7}};
  EXPECT_EQ(imported.unknown, unknown);
}

const std::string kBridgeAdapters = R"(model:
  tensor_model_parallel_size: 1
train:
  global_batch_size: 8
  micro_batch_size: 1
peft:
  _target_: megatron.bridge.peft.lora.LoRA
  dim: 16
  dropout: 0.1
  target_modules: [linear_qkv, linear_fc2]
)";

Imported import_bridge(const std::string& text, const char* model = "llama3-8b") {
  ImportGiven given;
  given.job = read_job(model);
  given.devices = 8;
  return import_text(text, "run.yaml", given);
}

std::string bridge_refusal(const std::string& text, const char* model = "llama3-8b") {
  try {
    import_bridge(text, model);
    return "read";
  } catch (const InputError& error) {
    return error.what();
  }
}

std::string targets_of(const std::string& text, const char* model = "llama3-8b") {
  const Imported imported = import_bridge(text, model);
  std::string words;
  for (std::size_t i = 0; i < kAdapterTargets.size(); ++i) {
    if (imported.job->adapters->targets.has(AdapterTarget(i)))
      words += std::string(kAdapterTargets[i]) + " ";
  }
  return words;
}

TEST(MegatronBridge, StatesAdapters) {
  const Imported imported = import_bridge(kBridgeAdapters);
  EXPECT_EQ(imported.job->adapters->rank, 16);
  EXPECT_EQ(imported.job->adapters->scale, 2);  // alpha is 32
  EXPECT_EQ(imported.job->adapters->dropout, 0.1);
  EXPECT_EQ(targets_of(kBridgeAdapters), "qkv down ");
  // Query, key and value are one product, and so are gate and up.
  const std::string targets = "  target_modules: [linear_qkv, linear_fc2]\n";
  EXPECT_EQ(targets_of(with(kBridgeAdapters, targets, "")), "qkv out gate_up down ");
  EXPECT_EQ(targets_of(with(kBridgeAdapters, targets, ""), "gpt2-small"), "qkv out up down ");
  EXPECT_FALSE(
      import_bridge(kBridgeAdapters.substr(0, kBridgeAdapters.find("peft:"))).job->adapters);
  EXPECT_TRUE(imported.unknown.empty());
}

TEST(MegatronBridge, AdaptersThatExpertsShareAreRefused) {
  const char* experts = "mixtral-8x7b";
  EXPECT_NE(bridge_refusal(kBridgeAdapters, experts)
                .find("line 10: peft.target_modules linear_qkv "
                      "linear_fc2: adapters of experts are"),
            std::string::npos);
  const std::string undropped = with(kBridgeAdapters, "  dropout: 0.1\n", "");
  EXPECT_EQ(targets_of(with(undropped, "linear_fc2", "linear_proj"), experts), "qkv out ");
  EXPECT_NE(
      bridge_refusal(with(undropped, "  target_modules: [linear_qkv, linear_fc2]\n", ""), experts)
          .find("peft.target_modules is required"),
      std::string::npos);
  EXPECT_NE(bridge_refusal(with(kBridgeAdapters, "lora.LoRA", "dora.DoRA")).find("those of LoRA"),
            std::string::npos);
}

}  // namespace
}  // namespace plimsoll
