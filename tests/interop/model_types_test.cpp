// Types of models: unknown ones are named with the nearest known, and structure that no job has is
// refused whatever the type is.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/interop/small_configs.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

TEST(ModelTypes, UnknownTypesAreNamedFirstWithTheNearestAndTheKnown) {
  const std::string message = fault(config("{}", "new"));
  EXPECT_TRUE(message.starts_with("/model_type: found \"new\", an unknown type; ")) << message;
  EXPECT_NE(message.find("which has all of its keys"), message.npos) << message;
  for (const std::string& name : supported_architectures()) {
    EXPECT_NE(message.find(name), message.npos) << name;
  }
  EXPECT_EQ(message.find(" olmo,"), message.npos);
  const std::string none = fault(config(R"({"model_type": "LEFT OUT"})"));
  EXPECT_TRUE(none.starts_with("/architectures: found neither model_type nor architectures"))
      << none;
}

/// A key that only one family has does not hide that the type is unknown.
TEST(ModelTypes, TheNearestFamilySaysWhichKeysItMisses) {
  const auto nearest = [](const char* changes) { return fault(config(changes, "new")); };
  const std::string experts = R"("num_experts": 64, "num_experts_per_tok": 8,
                                 "moe_intermediate_size": 32)";
  EXPECT_TRUE(states(nearest(("{" + experts + "}").c_str()),
                     {"/model_type", "\"new\"", "--family qwen3_moe", "all"}));
  EXPECT_TRUE(states(nearest(("{" + experts + R"(, "strange": 1})").c_str()),
                     {"/model_type", "\"new\"", "--family qwen3_moe", "without strange"}));
  const std::string activation = nearest(R"({"qk_norm": true, "hidden_act": "xielu"})");
  EXPECT_TRUE(states(activation, {"\"new\"", "--family ", "/hidden_act", "\"xielu\""}));
  const std::string linear = nearest(R"({"linear_key_head_dim": 8, "linear_num_key_heads": 4,
                                         "mtp_num_hidden_layers": 1})");
  EXPECT_TRUE(states(linear, {"linear_key_head_dim", "linear_num_key_heads", "attention"}));
  EXPECT_TRUE(states(linear, {"mtp_num_hidden_layers"}));
  // Constants that scale tensors are nearest to a file that states some.
  const std::string plain = nearest(R"({"max_position_embeddings": 64})");
  EXPECT_TRUE(states(plain, {"\"new\"", "--family llama"}));
  // Sizes are no structure: those that are usual elsewhere change nothing.
  const std::string sized = nearest(R"({"max_position_embeddings": 4096})");
  EXPECT_TRUE(states(sized, {"\"new\"", "--family llama"}));
  const std::string scaled = nearest(R"({"logits_scaling": 8, "residual_multiplier": 0.22})");
  EXPECT_TRUE(states(scaled, {"\"new\"", "--family granite"}));
  // A family with experts is not near to a file without any.
  const std::string dense = nearest(R"({"num_nextn_predict_layers": 1})");
  EXPECT_EQ(dense.find("--family glm4_moe reads"), dense.npos) << dense;
}

TEST(ModelTypes, TypesThatNoJobStatesAreRefusedByTheirReason) {
  const auto refused = [](const char* type) { return fault(config("{}", type)); };
  EXPECT_TRUE(states(refused("rwkv7"), {"/model_type", "\"rwkv7\"; this model", "no attention"}));
  EXPECT_TRUE(states(refused("modernbert"), {"\"modernbert\"; ", "rotary embeddings"}));
  EXPECT_TRUE(states(refused("apertus"), {"\"apertus\"; ", "xIELU"}));
  EXPECT_TRUE(states(refused("nanochat"), {"\"nanochat\"; ", "norms without weights"}));
  EXPECT_TRUE(states(fault(config(R"({"model_type": "LEFT OUT",
                                      "architectures": ["OPTForCausalLM"]})")),
                     {"/architectures", "\"OPTForCausalLM\"; ", "ReLU"}));
  ImportGiven given;
  given.family = "llama";
  EXPECT_EQ(fault(config("{}", "baichuan"), given), "");
}

TEST(ModelTypes, AFaultOfAKeyNamesTheType) {
  try {
    read_config(R"({"qk_layernorm": true})", "stablelm");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_TRUE(std::string(error.what()).ends_with("norms (model_type \"stablelm\")"));
  }
}

TEST(ModelTypes, LayersOfOtherKindsAreCountedBehindTheType) {
  EXPECT_TRUE(
      states(fault(config(R"({"layer_types": ["conv", "full_attention"]})", "new")),
             {"/model_type", "\"new\", an unknown type; layer_types has \"conv\" in 1 of 2"}));
  EXPECT_TRUE(states(fault(config(R"({"layers_block_type": ["mamba", "mamba"]})", "new")),
                     {"layers_block_type has \"mamba\" in 2 of 2"}));
  const std::string hybrid = R"({"shared_intermediate_size": 96, "num_local_experts": 0,
      "num_experts_per_tok": 0, "mamba_n_heads": 4, "position_embedding_type": "rope",
      "layer_types": ["attention", )";
  const Imported dense = read_config(hybrid + R"("attention"]})", "granitemoehybrid");
  EXPECT_EQ(dense.job->ffn_hidden, 96);
  EXPECT_FALSE(dense.job->experts);
  EXPECT_TRUE(has(dense.unread, "mamba_n_heads"));
  EXPECT_TRUE(states(fault(config(hybrid + R"("mamba"]})", "granitemoehybrid")),
                     {"/model_type", "\"granitemoehybrid\"; ", "\"mamba\" in 1 of 2"}));
  for (const char* types : {R"("LEFT OUT")", "null"}) {
    EXPECT_TRUE(states(fault(config(fmt::format(R"({{"position_embedding_type": "rope",
                                                    "layer_types": {}}})",
                                                types),
                                    "granitemoehybrid")),
                       {"/layer_types", "every layer has attention"}));
  }
}

TEST(ModelTypes, KeysMustHaveTheValuesThatATypeRequires) {
  const auto refused = [](const char* changes, const char* type) {
    return fault(config(changes, type));
  };
  EXPECT_TRUE(states(refused(R"({"qk_norm_type": "per_head"})", "minimax_m2"),
                     {"/qk_norm_type", "\"per_layer\" is required"}));
  EXPECT_EQ(refused(R"({"attn_type_list": [1, 1]})", "minimax_m2"), "");
  EXPECT_TRUE(
      states(refused(R"({"attn_type_list": [1, 0]})", "minimax_m2"), {"no linear attention"}));
  EXPECT_TRUE(
      states(refused(R"({"attn_config": {"qk_ln": true}})", "mpt"), {"/attn_config/qk_ln"}));
  EXPECT_TRUE(states(refused(R"({"no_bias": false})", "qwen"), {"/no_bias", "true is required"}));
  const std::string plain = R"({"kv_lora_rank": null, "n_routed_experts": 4, "use_mla": false})";
  const Job job = *read_config(plain, "deepseek_v2").job;
  EXPECT_FALSE(job.latent);
  EXPECT_EQ(job.kv_heads, 2);
  EXPECT_TRUE(states(refused(R"({"use_mla": false, "n_routed_experts": 4})", "deepseek_v2"),
                     {"/use_mla", "kv_lora_rank is null"}));
}

TEST(ModelTypes, KeysOfTypesOf2025AreRead) {
  const auto job = [](const std::string& changes, const char* type) {
    return *read_config(changes, type).job;
  };
  const std::string four = R"("num_hidden_layers": 4, "head_dim": 16)";
  const Job afmoe = job("{" + four + R"(, "mup_enabled": true})", "afmoe");
  EXPECT_TRUE(afmoe.attention_gate && afmoe.qk_norm);
  EXPECT_EQ(afmoe.factors.embedding, 8);
  EXPECT_EQ(afmoe.norm_place, NormPlace::around);
  EXPECT_EQ(afmoe.rotary.pattern, (std::vector{true, true, true, false}));
  EXPECT_EQ(job("{" + four + "}", "afmoe").factors.embedding, 1);
  EXPECT_EQ(job(R"({"rotary_dim": 8})", "gptj").rotary.fraction, 0.5);
  EXPECT_EQ(job(R"({"rotary_dim": null})", "gptj").rotary.fraction, 1);
  EXPECT_TRUE(job(R"({"rotary_dim": 8})", "codegen").head_bias);
  EXPECT_EQ(job("{}", "qwen").ffn_hidden, 64);
  EXPECT_EQ(job(R"({"num_layers": 2, "ffn_hidden_size": 128, "kv_channels": 16,
                    "padded_vocab_size": 512, "multi_query_group_num": 1, "rope_ratio": 500})",
                "chatglm")
                .rotary.base,
            5e6);
  EXPECT_NEAR(job(R"({"head_dim": 16, "rope_scaling": {"type": "dynamic", "alpha": 1000}})",
                  "hunyuan_v1_dense")
                  .rotary.base,
              1e4 * std::pow(1000, 16.0 / 14), 1);
  // Without windows every layer is turned.
  EXPECT_TRUE(job(R"({"sliding_window": null})", "exaone4").rotary.pattern.empty());
  const std::string ling =
      R"({"moe_intermediate_size": 32, "num_experts": 4, "num_shared_experts": 2,
                               "num_experts_per_tok": 2)";
  EXPECT_EQ(job(ling + "}", "bailing_moe").experts->shared_ffn_hidden, 64);
  // The model's code does not read the width, and others do.
  EXPECT_EQ(job(ling + R"(, "moe_shared_expert_intermediate_size": 32})", "bailing_moe")
                .experts->shared_ffn_hidden,
            64);
  EXPECT_TRUE(
      states(fault(config(ling + R"(, "moe_shared_expert_intermediate_size": 48})", "bailing_moe")),
             {"/moe_shared_expert_intermediate_size", "32 is required"}));
  EXPECT_EQ(job(R"({"num_nextn_predict_layers": 1})", "mimo").mtp->depths, 1);
  EXPECT_EQ(job(R"({"num_experts_per_tok": 2, "is_moe_layer": [false, true]})", "exaone_moe")
                .experts->pattern,
            (std::vector{false, true}));
  EXPECT_EQ(job(R"({"use_post_norm": true})", "hyperclovax").norm_place, NormPlace::around);
  EXPECT_NE(fault(config("{}", "hyperclovax")), "");
  EXPECT_TRUE(has(read_config(R"({"num_mtp_modules": 3})", "minimax_m2").notes, "num_mtp_modules"));
}

// HeliumAttention has biases before attention and not behind it; CwmAttention has none; heads of
// ChatGLM's keys are grouped if multi_query_attention is true (configuration_chatglm.py: false).
TEST(ModelTypes, BiasesAndGroupsAreThoseOfTheModelsCode) {
  const Job helium = *read_config(R"({"attention_bias": true})", "helium").job;
  EXPECT_TRUE(helium.qkv_bias && !helium.out_bias);
  EXPECT_EQ(helium.rotary.base, 1e5);
  EXPECT_EQ(helium.norm_epsilon, 1e-8);
  EXPECT_TRUE(states(fault(config(R"({"attention_bias": true, "layer_types": ["full_attention",
                                      "full_attention"]})",
                                  "cwm")),
                     {"/attention_bias", "biases"}));
  const auto heads = [](const std::string& keys) {
    return read_config(R"({"num_layers": 2, "ffn_hidden_size": 128, "kv_channels": 16,
                           "padded_vocab_size": 512)" +
                           keys + "}",
                       "chatglm")
        .job->kv_heads;
  };
  EXPECT_EQ(heads(""), 4);
  EXPECT_EQ(heads(R"(, "multi_query_group_num": 2)"), 4);
  EXPECT_EQ(heads(R"(, "multi_query_attention": false, "multi_query_group_num": 2)"), 4);
  EXPECT_EQ(heads(R"(, "multi_query_attention": true, "multi_query_group_num": 2)"), 2);
  EXPECT_EQ(heads(R"(, "multi_query_attention": true)"), 1);
}

// modeling_mistral4.py, yarn_apply_mscale; configuration_mistral4.py has angles for files without.
TEST(ModelTypes, AFilesOwnAnglesReplaceThoseOfTheLibrary) {
  const auto job = [](const char* angles) { return *read_config(angles, "mistral4").job; };
  const std::string sizes =
      R"("num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": null, "qk_nope_head_dim": 8,
      "qk_rope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
      "moe_intermediate_size": 32)";
  const double usual = 0.1 * std::log(128.0) + 1;
  const Job own = job(("{" + sizes + "}").c_str());
  EXPECT_NEAR(own.factors.scores, usual * usual, 1e-12);
  EXPECT_EQ(own.rotary.scale.factor, 128);
  EXPECT_EQ(own.rotary.scale.amplitude, 1);
  const double other = 0.1 * std::log(32.0) + 1;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Job stated =
        job(fmt::format(R"({{{}, "{}": {{"rope_type": "yarn", "factor": 32, "mscale": 1,
                            "mscale_all_dim": 1}}}})",
                        sizes, key)
                .c_str());
    EXPECT_NEAR(stated.factors.scores, other * other, 1e-12) << key;
    EXPECT_EQ(stated.rotary.scale.factor, 32);
    // Nothing of the library's object is left in the file's.
    const Job plain = job(
        fmt::format(R"({{{}, "{}": {{"rope_type": "yarn", "factor": 32}}}})", sizes, key).c_str());
    EXPECT_EQ(plain.factors.scores, 1) << key;
    EXPECT_NEAR(plain.rotary.scale.amplitude, other, 1e-12);
  }
}

TEST(ModelTypes, MembersOfObjectsThatAreNotReadAreNamed) {
  const auto unread = [](const char* changes, const char* type) {
    return read_config(changes, type).unread;
  };
  EXPECT_TRUE(has(unread(R"({"hidden_act": "gelu",
                             "attn_config": {"kv_n_heads": 2, "strange": 1}})",
                         "mpt"),
                  "attn_config/strange"));
  EXPECT_TRUE(has(
      unread(R"({"rope_scaling": {"rope_type": "linear", "factor": 2, "strange": 1}})", "llama"),
      "rope_scaling/strange"));
}

TEST(ModelTypes, ATowerMayBeInAnother) {
  Json whole = parse_json(R"({"model_type": "qwen2_5_omni", "talker_config": {}})", "test");
  whole["thinker_config"]["text_config"] = parse_json(config("{}", "qwen2_5_omni_text"), "test");
  const Imported imported = import_text(json_text(whole), "config.json");
  EXPECT_TRUE(imported.job->qkv_bias);
  EXPECT_EQ(imported.unread, std::vector<std::string>{"talker_config"});
  EXPECT_TRUE(has(imported.notes, "thinker_config/text_config: the model of text alone"));
}

/// Structure that no job has is refused whatever --family says.
TEST(ModelTypes, NoFamilyDropsStructure) {
  for (const char* key : {"index_topk",
                          "index_n_heads",
                          "compress_ratios",
                          "linear_attn_config",
                          "mamba_head_dim",
                          "ssm_state_size",
                          "state_size",
                          "attn_output_gate",
                          "hc_mult",
                          "block_configs",
                          "zero_expert_num",
                          "n_shared_experts",
                          "shared_expert_intermediate_size",
                          "mtp_num_hidden_layers",
                          "num_kv_shared_layers",
                          "full_attention_interval",
                          "mlp_layer_types",
                          "hybrid_layer_ids",
                          "conv_L_cache",
                          "block_types",
                          "swa_head_dim",
                          "v_head_dim",
                          "ngram_vocab_size",
                          "sparse_config"}) {
    ImportGiven given;
    given.family = "llama";
    const std::string changes = fmt::format(R"({{"{}": 4}})", key);
    const std::string message = fault(config(changes, "new"), given);
    EXPECT_TRUE(message.starts_with(fmt::format("/{}: found 4; ", key))) << key << ": " << message;
    EXPECT_EQ(fault(config(fmt::format(R"({{"{}": null}})", key), "new"), given), "") << key;
  }
}

TEST(ModelTypes, AKeyMayStateWhatATypeAlwaysHas) {
  const std::string experts = R"({"num_experts": 4, "num_experts_per_tok": 2,
                                  "moe_intermediate_size": 32, "use_qk_norm": )";
  const Imported stated = read_config(experts + "true}", "qwen3_moe");
  EXPECT_EQ(parameters(stated), parameters(read_config(experts + "null}", "qwen3_moe")));
  EXPECT_TRUE(stated.job->qk_norm);
  EXPECT_TRUE(stated.unread.empty());
  EXPECT_NE(fault(config(R"({"use_qk_norm": true})", "llama")), "");
}

/// Python's json writes numbers that JSON does not have.
TEST(ModelTypes, InfinityAndNaNAreReadAsPythonWritesThem) {
  const auto with = [](const std::string& value) {
    std::string text = config(R"({"time_step_limit": "HERE"})");
    return text.replace(text.find("\"HERE\""), 6, value);
  };
  for (const char* value : {"[0.0, Infinity]", "-Infinity", "NaN", "\"a \\\" Infinity\""}) {
    EXPECT_EQ(fault(with(value)), "") << value;
    EXPECT_EQ(import_text(with(value), "config.json").unread,
              std::vector<std::string>{"time_step_limit"})
        << value;
  }
  EXPECT_EQ(fault("{\"model_type\": \"llama\", \"vocab_size\": Infinity}"),
            "/vocab_size: found \"Infinity\"; an integer from 1 to 1073741824 is required");
}

TEST(ModelTypes, TheTypeOfWeightsIsNoAssumption) {
  const auto notes = [](const std::string& changes) { return read_config(changes).notes; };
  EXPECT_TRUE(has(notes("{}"), "precision bf16 is assumed"));
  for (const char* key : {"torch_dtype", "dtype"}) {
    EXPECT_FALSE(has(notes(fmt::format(R"({{"{}": "bfloat16"}})", key)), "precision")) << key;
    const auto other = notes(fmt::format(R"({{"{}": "float16"}})", key));
    EXPECT_FALSE(has(other, "is assumed; --precision")) << key;
    EXPECT_TRUE(has(other, fmt::format("{} float16 is the type of the file's weights", key)));
  }
}

TEST(ModelTypes, NamesWhatAModelComputesAndAJobLeavesOut) {
  const auto notes = [](const std::string& changes, const char* type) {
    return read_config(changes, type).notes;
  };
  EXPECT_TRUE(has(notes(R"({"no_rope_layers": [1, 0]})", "llama"), "lack rotary embeddings"));
  EXPECT_TRUE(has(notes(R"({"rope_scaling": {"rope_type": "longrope", "factor": 4}})", "llama"),
                  "rope_scaling longrope: a job cannot state these angles"));
  EXPECT_TRUE(has(notes(R"({"router_aux_loss_coef": 0.01})", "phimoe"), "router_aux_loss_coef"));
}

// transformers, models/mixtral: the loss is added if the model returns its routers' logits.
TEST(ModelTypes, RoutersMayHaveOneLossOverAllLayers) {
  const auto read = [](const std::string& changes) {
    return read_config(R"({"num_experts_per_tok": 2, "router_aux_loss_coef": 0.02)" + changes + "}",
                       "mixtral");
  };
  const Imported on = read(R"(, "output_router_logits": true)");
  EXPECT_TRUE(on.job->experts->balance_layers);
  EXPECT_EQ(on.job->experts->balance_loss, 0.04);
  EXPECT_TRUE(has(on.notes, "balance_sequences"));
  for (const char* off : {"", R"(, "output_router_logits": false)"}) {
    const Imported without = read(off);
    EXPECT_FALSE(without.job->experts->balance_layers);
    EXPECT_EQ(without.job->experts->balance_loss, 0);
    EXPECT_FALSE(has(without.notes, "router_aux_loss_coef"));
    EXPECT_FALSE(has(without.unread, "output_router_logits"));
  }
}

TEST(ModelTypes, ActivationsNormsAndBiasesAreStated) {
  const auto job = [](const std::string& changes, const char* type) {
    return *read_config(changes, type).job;
  };
  EXPECT_TRUE(job(R"({"hidden_act": "gelu"})", "starcoder2").activation_params.exact);
  EXPECT_FALSE(job(R"({"hidden_act": "gelu_pytorch_tanh"})", "starcoder2").activation_params.exact);
  EXPECT_FALSE(job(R"({"hidden_activation": "gelu"})", "gemma3").activation_params.exact);
  EXPECT_EQ(job(R"({"rms_norm_eps": 1e-06})", "llama").norm_epsilon, 1e-6);
  EXPECT_EQ(job(R"({"rms_norm_eps": 1e-05})", "llama").norm_epsilon, std::nullopt);
  const std::string falcon = R"({"multi_query": false, "alibi": )";
  EXPECT_TRUE(job(falcon + "true}", "falcon").alibi_scaled);
  EXPECT_FALSE(job(falcon + "false}", "falcon").alibi_scaled);
  const std::string experts = R"({"num_local_experts": 4, "num_experts_per_tok": 2})";
  const ActivationParams gate = job(experts, "gpt_oss").activation_params;
  EXPECT_EQ(gate, (ActivationParams{.limit = 7, .sharpness = 1.702, .offset = 1}));
}

// By hand from the models' code (models/presets/architectures have the sources).
TEST(ModelTypes, FactorsAreProductsOfKeys) {
  const auto factors = [](const std::string& changes, const char* type) {
    return read_config(changes, type).job->factors;
  };
  EXPECT_EQ(factors("{}", "llama"), Factors{});
  const Job plain = *read_config("{}", "gemma2").job;
  EXPECT_NEAR(plain.factors.embedding, std::sqrt(double(plain.hidden)), 1e-12);
  const Factors gemma = factors(R"({"head_dim": 128, "query_pre_attn_scalar": 144})", "gemma2");
  EXPECT_NEAR(gemma.scores, std::sqrt(128.0 / 144), 1e-12);
  const Factors granite = factors(R"({"embedding_multiplier": 12, "attention_multiplier": 0.0078125,
      "residual_multiplier": 0.22, "logits_scaling": 16, "head_dim": 64})",
                                  "granite");
  EXPECT_EQ(granite,
            (Factors{.embedding = 12, .branch = 0.22, .scores = 0.0625, .logits = 0.0625}));
  EXPECT_EQ(factors(R"({"logit_scale": 0.25})", "cohere").logits, 0.25);
}

TEST(ModelTypes, AnglesAreScaledAsStated) {
  const auto job = [](const std::string& scaling, const char* type) {
    return *read_config(fmt::format(R"({{"rope_scaling": {}}})", scaling), type).job;
  };
  EXPECT_EQ(job(R"({"rope_type": "default"})", "llama").rotary.scale, RotaryScale{});
  EXPECT_EQ(job(R"({"type": "linear", "factor": 8})", "llama").rotary.scale,
            (RotaryScale{.kind = RotaryScaling::linear, .factor = 8}));
  EXPECT_EQ(job(R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                    "original_max_position_embeddings": 8192})",
                "llama")
                .rotary.scale,
            (RotaryScale{RotaryScaling::llama3, 8, 8192, 1, 4}));
  // Llama 4 Scout: a step.
  EXPECT_EQ(job(R"({"rope_type": "llama3", "factor": 16, "low_freq_factor": 1,
                    "high_freq_factor": 1, "original_max_position_embeddings": 8192})",
                "llama")
                .rotary.scale,
            (RotaryScale{RotaryScaling::llama3, 16, 8192, 1, 1}));
  const RotaryScale yarn = job(R"({"rope_type": "yarn", "factor": 32, "truncate": false,
      "original_max_position_embeddings": 4096})",
                               "llama")
                               .rotary.scale;
  EXPECT_EQ(yarn,
            (RotaryScale{RotaryScaling::yarn, 32, 4096, 1, 32, false, 0.1 * std::log(32.0) + 1}));
  // Layers with a window and others have an object each.
  const std::string layers = R"({"layer_types": ["sliding_attention", "full_attention"],
      "sliding_window": 16, "rope_parameters": {"sliding_attention": {"rope_type": "default",
      "rope_theta": 5000}, "full_attention": {"rope_type": "linear", "factor": 8,
      "rope_theta": 5000}}})";
  const Rotary split = read_config(layers, "llama").job->rotary;
  EXPECT_EQ(split.scale, (RotaryScale{.kind = RotaryScaling::linear, .factor = 8}));
  EXPECT_EQ(split.window_base, 5000);
  EXPECT_NE(fault(config(R"({"rope_parameters": {"sliding_attention": {"rope_theta": 5000},
      "full_attention": {"partial_rotary_factor": 0.5}}})")),
            "");
  // DeepSeek-V3: both factors of what is turned cancel, and scores have the square of one.
  const std::string deepseek =
      R"({"num_key_value_heads": 4, "first_k_dense_replace": 0, "rope_scaling": {"type": "yarn",
      "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
      "original_max_position_embeddings": 4096}})";
  const Job v3 = *read_config(deepseek, "deepseek_v3").job;
  EXPECT_EQ(v3.rotary.scale.amplitude, 1);
  EXPECT_NEAR(v3.factors.scores, std::pow(0.1 * std::log(40.0) + 1, 2), 1e-12);
}

// By hand from the models' code.
TEST(ModelTypes, QueriesGrowAsStated) {
  const auto growth = [](const std::string& changes, const char* type) {
    const Imported read = read_config(changes, type);
    EXPECT_EQ(std::ranges::count_if(read.unread,
                                    [](const std::string& key) {
                                      return key.find("scal") != key.npos ||
                                             key.find("attn") != key.npos;
                                    }),
              0);
    return read.job->rotary.growth;
  };
  const std::string layers = R"({"num_hidden_layers": 8, "num_key_value_heads": 4,
      "num_local_experts": 4, "attn_temperature_tuning": )";
  EXPECT_EQ(growth(layers + "4}", "llama4"), (QueryGrowth{0.1, 8192, 1}));
  EXPECT_EQ(growth(layers + R"(true, "attn_scale": 0.2, "floor_scale": 64})", "llama4"),
            (QueryGrowth{0.2, 64, 1}));
  EXPECT_EQ(growth(layers + R"(false, "attn_scale": 0.2})", "llama4"), QueryGrowth());
  EXPECT_EQ(growth(layers + R"(true, "no_rope_layer_interval": 9})", "llama4"), QueryGrowth());
  const std::string rope = R"({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6,
      "original_max_position_embeddings": 4096, "llama_4_scaling_beta": )";
  EXPECT_EQ(growth(rope + "0.3}}", "ministral3"), (QueryGrowth{0.3, 4096, 0}));
  EXPECT_EQ(growth(rope + "0}}", "ministral3"), QueryGrowth());
  const std::vector<std::string> other = read_config(rope + "0.3}}", "llama").unread;
  EXPECT_EQ(std::ranges::count(other, "rope_parameters/llama_4_scaling_beta"), 1);
}

TEST(ModelTypes, SomeLayersHaveNoRotaryEmbeddings) {
  const auto pattern = [](const std::string& changes, const char* type) {
    return read_config(changes, type).job->rotary.pattern;
  };
  const std::vector<bool> three_of_four = {true, true, true, false};
  EXPECT_EQ(pattern(R"({"num_hidden_layers": 8})", "smollm3"), three_of_four);
  EXPECT_FALSE(has(read_config(R"({"no_rope_layers": [1, 0]})", "smollm3").notes, "rotary"));
  EXPECT_EQ(pattern(R"({"num_hidden_layers": 4, "no_rope_layers": [1, 0, 1, 0]})", "smollm3"),
            (std::vector<bool>{true, false}));
  EXPECT_EQ(pattern(R"({"num_hidden_layers": 8})", "cohere2"), three_of_four);
  EXPECT_EQ(pattern("{}", "llama"), std::vector<bool>{});
}

TEST(ModelTypes, RotaryEmbeddingsOfAnyPairsAreRotary) {
  const auto stated = [](const char* word) {
    return fault(config(fmt::format(R"({{"position_embedding_type": "{}"}})", word), "cohere2"));
  };
  EXPECT_EQ(stated("rope"), "");
  EXPECT_EQ(stated("rope_gptj"), "");
  EXPECT_EQ(stated("absolute"),
            "/position_embedding_type: found \"absolute\"; \"rope\" is required here");
}

TEST(ModelTypes, ListsOfLayersCountWhereAllLayersAreAlike) {
  const std::string hunyuan = R"({"num_experts": 4, "moe_topk": [2, 2], "num_shared_expert": [1, 1],
                                  "moe_intermediate_size": )";
  const Job job = *read_config(hunyuan + "[32, 32]}", "hunyuan_v1_moe").job;
  EXPECT_EQ(job.experts->chosen, 2);
  EXPECT_EQ(job.experts->ffn_hidden, 32);
  EXPECT_EQ(job.experts->shared_ffn_hidden, 32);
  for (const char* list : {"[32, 48]", "[32]", "[]", "[\"a\", \"a\"]"}) {
    EXPECT_EQ(fault(config(hunyuan + list + "}", "hunyuan_v1_moe"))
                  .rfind("/moe_intermediate_size: found ", 0),
              0u)
        << list;
  }
}

}  // namespace
}  // namespace plimsoll
