// A config.json is read or refused by key, and notes say how it was read.
#include "imports/hugging_face.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "graph/graph.h"
#include "imports/architecture.h"

namespace plimsoll {
namespace {

/// A small model of a family, with the members of `changes`, an object. "LEFT OUT" leaves one out.
std::string config(const std::string& changes, const char* model_type = "llama") {
  Json value = parse_json(R"({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                              "intermediate_size": 128, "vocab_size": 256, "hidden_act": "silu",
                              "max_position_embeddings": 128})",
                          "test");
  value["model_type"] = model_type;
  const Architecture* known = architecture_of_type(model_type);
  if (known != nullptr && known->family == Family::llama) value["num_key_value_heads"] = 2;
  const Json changed = parse_json(changes, "test");
  for (const auto& [key, change] : changed.items()) {
    if (change.is_string() && change.get<std::string>() == "LEFT OUT") {
      value.erase(key);
    } else {
      value[key] = change;
    }
  }
  return json_text(value);
}

Imported read_config(const std::string& changes, const char* model_type = "llama",
                     const ImportGiven& given = {}) {
  return import_text(config(changes, model_type), "config.json", given);
}

std::int64_t parameters(const Imported& imported) {
  return parameter_count(build_forward(*imported.job, 1));
}

/// Returns the fault of a config.json: "POINTER: MESSAGE"; nothing where it has none.
std::string fault(const std::string& text, const ImportGiven& given = {}) {
  try {
    import_text(text, "config.json", given);
  } catch (const InputError& error) {
    EXPECT_EQ(error.file(), "config.json");
    return std::string(error.what()).substr(std::string("config.json: at ").size());
  }
  return "";
}

bool has(const std::vector<std::string>& lines, const std::string& words) {
  return std::ranges::any_of(
      lines, [&](const std::string& line) { return line.find(words) != line.npos; });
}

struct Refusal {
  const char* model_type;
  const char* changes;
  const char* fault;
};

TEST(HuggingFace, RefusesWhatNoJobStatesByKeyValueAndWhatAJobCanState) {
  const Refusal refusals[] = {
      {"llama", R"({"num_local_experts": 8})",
       "/num_local_experts: found 8; it is not known which layers of models of this type have "
       "experts"},
      {"llama", R"({"kv_lora_rank": 512})",
       "/kv_lora_rank: found 512; it is not known what latent attention models of this type have"},
      {"olmo", "{}",
       "/model_type: found \"olmo\"; this model has norms without weights; a job's norms have them"},
      {"cohere", R"({"use_qk_norm": true})",
       "/use_qk_norm: found true; it is not known which norms of queries and keys models of this "
       "type have"},
      {"mpt", R"({"hidden_act": "gelu", "expansion_ratio": 2})",
       "/expansion_ratio: found 2; the MLP of a job is four times as wide as hidden, or has a key"},
      {"mpt", R"({"d_model": 64, "n_layers": 2, "n_heads": 4, "attn_config": {"kv_n_heads": 0}})",
       "/attn_config/kv_n_heads: found 0; an integer from 1 to 1073741824 is required"},
      {"llama4", R"({"interleave_moe_layer_step": 1, "moe_layers": [9]})",
       "/moe_layers: found [9]; layers from 0 to 1 are required"},
      {"llama", R"({"num_nextn_predict_layers": 1})",
       "/num_nextn_predict_layers: found 1; it is not known what the MTP modules of models of this "
       "type are"},
      {"deepseek_v3", R"({"num_key_value_heads": 4, "moe_layer_freq": 2})",
       "/moe_layer_freq: found 2; 1 is required: so are the experts of models of this type"},
      {"stablelm", R"({"qk_layernorm": true})",
       "/qk_layernorm: found true; it is not known which norms of queries and keys models of this "
       "type have"},
      {"mistral", R"({"mlp_bias": true})",
       "/mlp_bias: found true; it is not known which layers of models of this type have biases"},
      {"bert", R"({"head_dim": 32, "hidden_act": "gelu"})",
       "/head_dim: found 32; heads of a bert job are hidden / heads = 64 / 4 wide"},
      {"llama", R"({"num_attention_heads": 5})",
       "/num_attention_heads: found 5 heads; they must divide hidden 64, or head_size states their "
       "width"},
      {"llama", R"({"num_key_value_heads": 3})",
       "/num_key_value_heads: found 3; it must divide the 4 heads"},
      {"llama", R"({"hidden_act": "relu2"})",
       "/hidden_act: found \"relu2\"; a job with rotary embeddings has GELU, with a gate or without "
       "one, SwiGLU (\"silu\" with a gate) or squared ReLU (\"relu2\" without one); this model has "
       "a gate"},
      {"bert", R"({"hidden_act": "relu"})",
       "/hidden_act: found \"relu\"; gpt and bert jobs have GELU"},
      {"bert", R"({"hidden_act": "gelu", "position_embedding_type": "relative_key"})",
       "/position_embedding_type: found \"relative_key\"; \"absolute\" is required here"},
      {"bert", R"({"hidden_act": "gelu", "hidden_dropout_prob": 0.0})",
       "/attention_probs_dropout_prob: found 0.1; a job drops out embeddings, attention and "
       "residual branches alike, and here they differ (hidden_dropout_prob); --dropout states one "
       "for all"},
      {"llama", R"({"num_hidden_layers": 0})",
       "/num_hidden_layers: found 0; an integer from 1 to 1073741824 is required"},
      {"llama", R"({"num_hidden_layers": 2.5})",
       "/num_hidden_layers: found 2.5; an integer from 1 to 1073741824 is required"},
      {"llama", R"({"hidden_size": 2097152})",
       "/hidden_size: found 2097152; an integer from 1 to 1048576 is required"},
      {"llama", R"({"layer_types": ["full_attention", "linear_attention"]})",
       "/layer_types: found [\"full_attention\",\"linear_attention\"]; every layer of a job has "
       "attention"},
      {"llama", R"({"rope_parameters": {"chunked_attention": {"rope_theta": 1e6}}})",
       "/rope_parameters/chunked_attention: found an object of 1 members; layers with a window and "
       "others may differ, and no others"},
      {"ernie", R"({"use_task_id": true})",
       "/use_task_id: found true; a bert job has tables of words, positions and token types alone"},
  };
  for (const Refusal& refusal : refusals) {
    EXPECT_EQ(fault(config(refusal.changes, refusal.model_type)), refusal.fault);
  }
}

TEST(HuggingFace, UnknownTypesAreNamedFirstWithTheNearestAndTheKnown) {
  const std::string message = fault(config("{}", "rwkv"));
  EXPECT_TRUE(message.starts_with("/model_type: found \"rwkv\", which is no known type; "))
      << message;
  EXPECT_NE(message.find("which has all of its keys"), message.npos) << message;
  for (const std::string& name : supported_architectures()) {
    EXPECT_NE(message.find(name), message.npos) << name;
  }
  EXPECT_EQ(message.find("olmo,"), message.npos);
  const std::string none = fault(config(R"({"model_type": "LEFT OUT"})"));
  EXPECT_TRUE(none.starts_with("/architectures: found neither model_type nor architectures"))
      << none;
}

/// A key that only one family has does not hide that the type is unknown.
TEST(HuggingFace, TheNearestFamilySaysWhichKeysItMisses) {
  const auto nearest = [](const char* changes) { return fault(config(changes, "new")); };
  const std::string known = "/model_type: found \"new\", which is no known type; ";
  const std::string experts = R"("num_experts": 64, "num_experts_per_tok": 8,
                                 "moe_intermediate_size": 32)";
  EXPECT_TRUE(nearest(("{" + experts + "}").c_str())
                  .starts_with(known + "--family qwen3_moe reads it as the nearest, which has all"))
      << nearest(("{" + experts + "}").c_str());
  EXPECT_TRUE(
      nearest(("{" + experts + R"(, "strange": 1})").c_str())
          .starts_with(known + "--family qwen3_moe reads it as the nearest, without strange;"))
      << nearest(("{" + experts + R"(, "strange": 1})").c_str());
  const std::string activation = nearest(R"({"qk_norm": true, "hidden_act": "xielu"})");
  EXPECT_TRUE(activation.starts_with(known + "as ")) << activation;
  EXPECT_NE(activation.find("/hidden_act: found \"xielu\"; a job with rotary"), activation.npos)
      << activation;
  const std::string states = nearest(R"({"linear_key_head_dim": 8, "linear_num_key_heads": 4,
                                         "mtp_num_hidden_layers": 1})");
  EXPECT_NE(states.find("linear_key_head_dim, linear_num_key_heads (every layer of a job has "
                        "attention, no state space and no linear attention)"),
            states.npos)
      << states;
  EXPECT_NE(states.find("mtp_num_hidden_layers (it is not known what the MTP"), states.npos)
      << states;
  // A family with experts is not near to a file without any.
  const std::string dense = nearest(R"({"num_nextn_predict_layers": 1})");
  EXPECT_EQ(dense.find("--family glm4_moe reads"), dense.npos) << dense;
}

/// Structure that no job has is refused whatever --family says.
TEST(HuggingFace, NoFamilyDropsStructure) {
  for (const char* key : {"index_topk", "index_n_heads", "compress_ratios", "linear_attn_config",
                          "mamba_head_dim", "ssm_state_size", "state_size", "attn_output_gate",
                          "hc_mult", "block_configs", "zero_expert_num", "n_shared_experts",
                          "shared_expert_intermediate_size", "mtp_num_hidden_layers",
                          "num_kv_shared_layers", "full_attention_interval", "mlp_layer_types"}) {
    ImportGiven given;
    given.family = "llama";
    const std::string changes = fmt::format(R"({{"{}": 4}})", key);
    const std::string message = fault(config(changes, "new"), given);
    EXPECT_TRUE(message.starts_with(fmt::format("/{}: found 4; ", key))) << key << ": " << message;
    EXPECT_EQ(fault(config(fmt::format(R"({{"{}": null}})", key), "new"), given), "") << key;
  }
}

TEST(HuggingFace, AKeyMayStateWhatATypeAlwaysHas) {
  const std::string experts = R"({"num_experts": 4, "num_experts_per_tok": 2,
                                  "moe_intermediate_size": 32, "use_qk_norm": )";
  const Imported stated = read_config(experts + "true}", "qwen3_moe");
  EXPECT_EQ(parameters(stated), parameters(read_config(experts + "null}", "qwen3_moe")));
  EXPECT_TRUE(stated.job->qk_norm);
  EXPECT_TRUE(stated.unread.empty());
  EXPECT_NE(fault(config(R"({"use_qk_norm": true})", "llama")), "");
}

/// Python's json writes numbers that JSON does not have.
TEST(HuggingFace, InfinityAndNaNAreReadAsPythonWritesThem) {
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

TEST(HuggingFace, TheTypeOfWeightsIsNoAssumption) {
  const auto notes = [](const std::string& changes) { return read_config(changes).notes; };
  EXPECT_TRUE(has(notes("{}"), "precision bf16 is assumed"));
  for (const char* key : {"torch_dtype", "dtype"}) {
    EXPECT_FALSE(has(notes(fmt::format(R"({{"{}": "bfloat16"}})", key)), "precision")) << key;
    const auto other = notes(fmt::format(R"({{"{}": "float16"}})", key));
    EXPECT_FALSE(has(other, "is assumed; --precision")) << key;
    EXPECT_TRUE(has(other, fmt::format("{} float16 is the type of the file's weights", key)));
  }
}

TEST(HuggingFace, NamesWhatAModelComputesAndAJobLeavesOut) {
  const auto notes = [](const std::string& changes, const char* type) {
    return read_config(changes, type).notes;
  };
  EXPECT_TRUE(has(notes(R"({"hidden_activation": "gelu"})", "gemma3"),
                  "a job leaves out: the embedding times the root of hidden_size"));
  EXPECT_TRUE(has(notes(R"({"hidden_act": "gelu"})", "starcoder2"),
                  "hidden_act gelu: a job has the tanh approximation"));
  EXPECT_FALSE(has(notes(R"({"hidden_act": "gelu_pytorch_tanh"})", "starcoder2"), "approximation"));
  EXPECT_TRUE(has(notes(R"({"rms_norm_eps": 1e-06})", "llama"),
                  "rms_norm_eps 1e-06: norms of a job have an epsilon of 1e-05"));
  EXPECT_FALSE(has(notes(R"({"rms_norm_eps": 1e-05})", "llama"), "epsilon"));
  const std::string falcon = R"({"multi_query": false, "alibi": )";
  EXPECT_TRUE(has(notes(falcon + "true}", "falcon"), "divided by the root of the head size"));
  EXPECT_FALSE(has(notes(falcon + "false}", "falcon"), "divided by the root of the head size"));
  EXPECT_TRUE(has(notes(R"({"router_aux_loss_coef": 0.01})", "mixtral"), "router_aux_loss_coef"));
}

TEST(HuggingFace, ListsOfLayersCountWhereAllLayersAreAlike) {
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

TEST(HuggingFace, TypesOfLayersSayWhichHaveExpertsAndWhichAWindow) {
  const std::string lite = R"({"first_k_dense_replace": 0, "n_routed_experts": 4,
                               "num_key_value_heads": 4, "mlp_layer_types": )";
  const auto pattern = [&](const std::string& types) {
    return read_config(lite + types + "}", "glm4_moe_lite").job->experts->pattern;
  };
  EXPECT_EQ(pattern(R"(["dense", "sparse"])"), (std::vector{false, true}));
  EXPECT_TRUE(pattern(R"(["sparse", "sparse"])").empty());
  EXPECT_NE(fault(config(lite + R"(["sparse"]})", "glm4_moe_lite")), "");
  EXPECT_NE(fault(config(lite + R"(["sparse", "other"]})", "glm4_moe_lite")), "");
  const auto windows = [](const std::string& letters) {
    return read_config(R"({"num_hidden_layers": 4, "sliding_window": 16,
                           "sliding_window_pattern": )" +
                           letters + "}",
                       "exaone4")
        .job->window_pattern;
  };
  EXPECT_EQ(windows("\"LLLG\""), (std::vector{true, true, true, false}));
  EXPECT_EQ(windows("\"L\""), (std::vector{true, true, true, false}));  // the last is global
  EXPECT_EQ(windows("2"), (std::vector{true, false}));
  EXPECT_NE(fault(config(R"({"sliding_window": 16, "sliding_window_pattern": "LX"})", "exaone4")),
            "");
}

TEST(HuggingFace, TakesTheClassWhereThereIsNoModelType) {
  const Imported imported =
      read_config(R"({"model_type": "LEFT OUT", "architectures": ["Qwen2ForCausalLM"]})");
  EXPECT_TRUE(imported.job->qkv_bias);
}

TEST(HuggingFace, SwitchesOfAFileSayWhatTheMlpReadsAndWhatHasBiases) {
  const auto falcon = [](const std::string& norms) {
    return read_config(R"({"parallel_attn": true, "new_decoder_architecture": true,
                           "num_ln_in_parallel_attn": )" +
                           norms + "}",
                       "falcon")
        .job->mlp_input;
  };
  EXPECT_EQ(falcon("1"), MlpInput::shared_norm);
  EXPECT_EQ(falcon("2"), MlpInput::own_norm);
  EXPECT_EQ(falcon("null"), MlpInput::own_norm);
  EXPECT_NE(fault(config(R"({"num_ln_in_parallel_attn": 3})", "falcon")), "");
  const std::string gelu = R"("hidden_act": "gelu")";
  EXPECT_EQ(
      read_config("{" + gelu + R"(, "use_parallel_residual": false})", "gpt_neox").job->mlp_input,
      MlpInput::attended);
  const Job biased = *read_config(R"({"attention_bias": true})").job;
  EXPECT_TRUE(biased.qkv_bias && biased.out_bias && !biased.mlp_bias);
  EXPECT_NE(fault(config("{" + gelu + R"(, "use_bidirectional_attention": true})", "gemma")), "");
}

TEST(HuggingFace, FamilyForcesAnArchitecture) {
  ImportGiven given;
  given.family = "llama";
  const Imported imported = read_config(R"({"strange": 1})", "my_llama", given);
  EXPECT_EQ(imported.job->family, Family::llama);
  EXPECT_TRUE(has(imported.notes, "read as llama because --family says so"));
  EXPECT_EQ(imported.unread, std::vector<std::string>{"strange"});
  // A key that no job can state is refused all the same.
  EXPECT_NE(fault(config(R"({"num_experts": 4})", "my_llama"), given), "");
  given.family = "olmo";
  EXPECT_THROW(read_config("{}", "llama", given), UsageError);
}

TEST(HuggingFace, AWindowIsOfKnownLayersOrNoTokenReachesBehindIt) {
  ImportGiven given;
  given.sequence = 64;
  EXPECT_EQ(read_config(R"({"sliding_window": 63})", "mistral", given).job->window, 63);
  EXPECT_EQ(read_config(R"({"sliding_window": null})", "mistral", given).job->window, 0);
  EXPECT_EQ(fault(config(R"({"sliding_window": 64})", "llama"), given), "");
  EXPECT_EQ(
      fault(config(R"({"sliding_window": 63})", "llama"), given),
      "/sliding_window: found 63; it is not known which layers of models of this type see all "
      "64 tokens; --sequence 63 or less fits in the window");
  EXPECT_NE(fault(config(R"({"attention_chunk_size": 63})", "llama"), given), "");
  // Qwen2 has its window in no layer, or in those from max_window_layers on.
  EXPECT_EQ(fault(config(R"({"sliding_window": 16})", "qwen2")), "");
  using Pattern = std::vector<bool>;
  const auto from_layer = [](const char* layer) {
    const Job job = *read_config(fmt::format(R"({{"sliding_window": 16, "use_sliding_window": true,
                                                  "max_window_layers": {}}})",
                                             layer),
                                 "qwen2")
                         .job;
    return std::pair(job.window, job.window_pattern);
  };
  EXPECT_EQ(from_layer("2"), std::pair(std::int64_t{0}, Pattern{}));
  EXPECT_EQ(from_layer("1"), std::pair(std::int64_t{16}, Pattern{false, true}));
  EXPECT_EQ(from_layer("0"), std::pair(std::int64_t{16}, Pattern{}));
  const auto second_layer = [](const char* type) {
    return *read_config(fmt::format(R"({{"sliding_window": 16,
                                         "layer_types": ["full_attention", "{}"]}})",
                                    type))
                .job;
  };
  EXPECT_EQ(second_layer("full_attention").window, 0);
  EXPECT_EQ(second_layer("sliding_attention").window, 16);
  EXPECT_EQ(second_layer("sliding_attention").window_pattern, (Pattern{false, true}));
  EXPECT_NE(fault(config(R"({"layer_types": ["full_attention"]})")), "");
  const Job chunks = *read_config(R"({"attention_chunk_size": 16, "layer_types":
      ["chunked_attention", "full_attention"]})")
                          .job;
  EXPECT_TRUE(chunks.window_chunks);
  EXPECT_EQ(chunks.window, 16);
  EXPECT_NE(fault(config(R"({"sliding_window": 16, "layer_types":
      ["chunked_attention", "sliding_attention"]})")),
            "");
  const Job angles = *read_config(R"({"rope_parameters": {
      "full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 5000}},
      "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]})")
                          .job;
  EXPECT_EQ(angles.rotary_base, 1e6);
  EXPECT_EQ(angles.window_rotary_base, 5000);
  // The library's own window holds where a file leaves the key out.
  EXPECT_EQ(read_config("{}", "mistral", given).job->window, 4096);
}

TEST(HuggingFace, AssumesWhatNoFileSaysAndSaysSo) {
  const Imported assumed = read_config("{}");
  EXPECT_EQ(assumed.job->sequence, 128);
  EXPECT_EQ(assumed.job->global_batch, 256);
  EXPECT_EQ(assumed.job->precision, DType::bf16);
  EXPECT_TRUE(has(assumed.notes, "sequence 128 is assumed"));
  EXPECT_TRUE(has(assumed.notes, "global batch 256 sequences is assumed"));
  EXPECT_TRUE(has(assumed.notes, "precision bf16 is assumed"));
  EXPECT_TRUE(has(assumed.notes, "optimizer AdamW"));
  ImportGiven given;
  given.sequence = 32, given.global_batch = 8, given.precision = DType::f16, given.name = "mine";
  const Imported stated = read_config("{}", "llama", given);
  EXPECT_EQ(stated.job->sequence, 32);
  EXPECT_EQ(stated.job->global_batch, 8);
  EXPECT_EQ(stated.job->precision, DType::f16);
  EXPECT_TRUE(stated.job->loss_scale);
  EXPECT_EQ(stated.job->name, "mine");
  EXPECT_FALSE(has(stated.notes, "--sequence") || has(stated.notes, "--global-batch") ||
               has(stated.notes, "--precision"));
}

TEST(HuggingFace, LearnedPositionsAreRowsOfTheSequence) {
  const std::string gpt = R"({"max_position_embeddings": "LEFT OUT", "n_positions": 32})";
  EXPECT_EQ(read_config(gpt, "gpt2").job->sequence, 32);
  ImportGiven shorter;
  shorter.sequence = 16;
  const Imported cut = read_config(gpt, "gpt2", shorter);
  EXPECT_TRUE(has(cut.notes, "a row for each of its 16 tokens, 1024 parameters fewer"));
  EXPECT_EQ(parameters(read_config(gpt, "gpt2")) - parameters(cut), 1024);
  shorter.sequence = 33;
  EXPECT_EQ(fault(config(gpt, "gpt2"), shorter),
            "/n_positions: found 32; a sequence of 33 tokens needs as many rows of positions");
}

TEST(HuggingFace, TakesTheLibrarysOtherNames) {
  const Imported imported = read_config("{}", "gpt2");  // with hidden_size for n_embd, and so on
  EXPECT_EQ(imported.job->hidden, 64);
  EXPECT_EQ(imported.job->layers, 2);
  EXPECT_EQ(imported.job->sequence, 128);
  EXPECT_EQ(read_config(R"({"n_embd": 64})", "gpt2").job->hidden, 64);
  EXPECT_EQ(fault(config(R"({"n_embd": 32})", "gpt2")),
            "/hidden_size: found 64; n_embd is the same and says 32");
}

TEST(HuggingFace, DropoutOfTheWholeJobCanBeStated) {
  const std::string uneven = R"({"hidden_act": "gelu", "hidden_dropout_prob": 0.0})";
  ImportGiven given;
  given.dropout = 0.0;
  EXPECT_EQ(read_config(uneven, "bert", given).job->dropout, 0);
  EXPECT_EQ(read_config(R"({"hidden_act": "gelu"})", "bert").job->dropout, 0.1);
}

TEST(HuggingFace, NotesWhatAJobLeavesOut) {
  const Imported imported = read_config(R"({
      "auto_map": {"AutoModelForCausalLM": "x.py"}, "rope_scaling": {"type": "yarn", "factor": 4.0},
      "quantization_config": {"quant_method": "fp8"}, "partial_rotary_factor": 0.5})");
  EXPECT_TRUE(has(imported.notes, "auto_map: code beside the file is not followed"));
  EXPECT_TRUE(has(imported.notes, "rope_scaling yarn: it changes the angles"));
  EXPECT_TRUE(has(imported.notes, "quantization_config: it says how weights are stored"));
  EXPECT_EQ(imported.job->rotary_fraction, 0.5);
  EXPECT_TRUE(
      has(read_config(R"({"architectures": ["LlamaForSequenceClassification"]})").notes,
          "architectures LlamaForSequenceClassification: a job has the head of a language"));
  EXPECT_FALSE(
      has(read_config(R"({"architectures": ["LlamaForCausalLM"]})").notes, "architectures"));
  const Imported scaled = read_config(R"({"residual_multiplier": 0.22})", "granite");
  EXPECT_TRUE(has(scaled.notes, "residual_multiplier 0.22: a constant factor"));
  EXPECT_TRUE(has(read_config(R"({"hidden_act": "gelu"})", "bert").notes,
                  "the norm and the output bias of the masked-LM head (384 parameters)"));
}

TEST(HuggingFace, NamesSizesThatOnlyTheLibraryStates) {
  const Imported imported = read_config(R"({"hidden_size": "LEFT OUT", "vocab_size": "LEFT OUT"})");
  EXPECT_EQ(imported.job->hidden, 4096);
  EXPECT_TRUE(has(imported.notes,
                  "taken from the defaults of llama in transformers: hidden_size 4096, vocab_size "
                  "32000"));
  // null is not absent: a null count of key and value heads is that of all heads.
  EXPECT_EQ(read_config(R"({"num_key_value_heads": null})", "mistral").job->kv_heads, 4);
}

TEST(HuggingFace, ReadsTheTextTowerOfAMultimodalFile) {
  Json whole = parse_json(R"({"model_type": "llava", "image_token_index": 7,
      "vision_config": {"hidden_size": 9}, "projector_hidden_act": "gelu"})",
                          "test");
  whole["text_config"] = parse_json(config("{}"), "test");
  const Imported imported = import_text(json_text(whole), "config.json");
  EXPECT_EQ(imported.job->hidden, 64);
  EXPECT_FALSE(imported.job->tied_embeddings);
  EXPECT_TRUE(has(imported.notes, "text_config: the model of text alone is read"));
  EXPECT_EQ(imported.unread, std::vector<std::string>{"projector_hidden_act"});
  whole["tie_word_embeddings"] = true;
  EXPECT_TRUE(import_text(json_text(whole), "config.json").job->tied_embeddings);
  whole["text_config"]["use_bias"] = true;
  whole["text_config"]["own"] = 1;
  EXPECT_TRUE(fault(json_text(whole)).starts_with("/text_config/use_bias: found true"));
  whole["text_config"]["use_bias"] = false;
  EXPECT_TRUE(has(import_text(json_text(whole), "config.json").unread, "text_config/own"));
}

TEST(HuggingFace, RefusesTextThatIsNoSuchFile) {
  EXPECT_NE(fault("num_hidden_layers: 3").find("fits no kind of file that is imported"),
            std::string::npos);
  EXPECT_NE(fault("").find("fits no kind"), std::string::npos);
  // A key that is given twice, and JSON that ends early, are named with their place.
  EXPECT_NE(fault("{\"model_type\": \"llama\", \"hidden_size\": 1, \"hidden_size\": 2}")
                .find("hidden_size"),
            std::string::npos);
  EXPECT_NE(fault("{\"model_type\": \"llama\", "), "");
  EXPECT_NE(fault("{\"model_type\": \"llama\", \"vocab_size\": NaN}"), "");
  EXPECT_FALSE(is_importable(job_text(*read_config("{}").job)));
}

}  // namespace
}  // namespace plimsoll
