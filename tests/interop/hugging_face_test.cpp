// A config.json is read or refused by key, and notes say how it was read.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "interop/imports/readers.h"
#include "tests/interop/small_configs.h"

namespace plimsoll {
namespace {

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
       "/use_qk_norm: found true; norms of queries and keys of models of this type are not known, "
       "or no RMS norms"},
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
       "/moe_layer_freq: found 2; 1 is required: so are models of this type"},
      {"stablelm", R"({"qk_layernorm": true})",
       "/qk_layernorm: found true; norms of queries and keys of models of this type are not known, "
       "or no RMS norms"},
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
       "/model_type: found \"llama\"; layer_types has \"linear_attention\" in 1 of 2 layers; a layer "
       "of a job has full attention, a window or chunks"},
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
  EXPECT_TRUE(has(imported.notes, "read as llama because of --family"));
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
  EXPECT_EQ(angles.rotary.base, 1e6);
  EXPECT_EQ(angles.rotary.window_base, 5000);
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
      "auto_map": {"AutoModelForCausalLM": "x.py"}, "rope_scaling": {"type": "dynamic", "factor": 4.0},
      "quantization_config": {"quant_method": "fp8"}, "partial_rotary_factor": 0.5})");
  EXPECT_TRUE(has(imported.notes, "auto_map: "));
  EXPECT_TRUE(has(imported.notes, "rope_scaling dynamic: "));
  EXPECT_TRUE(has(imported.notes, "quantization_config: "));
  EXPECT_EQ(imported.job->rotary.fraction, 0.5);
  EXPECT_TRUE(has(read_config(R"({"architectures": ["LlamaForSequenceClassification"]})").notes,
                  "architectures LlamaForSequenceClassification: "));
  EXPECT_FALSE(
      has(read_config(R"({"architectures": ["LlamaForCausalLM"]})").notes, "architectures"));
  EXPECT_TRUE(has(read_config(R"({"hidden_act": "gelu"})", "bert").notes, "(384 parameters)"));
}

TEST(HuggingFace, NamesSizesThatOnlyTheLibraryStates) {
  const Imported imported = read_config(R"({"hidden_size": "LEFT OUT", "vocab_size": "LEFT OUT"})");
  EXPECT_EQ(imported.job->hidden, 4096);
  EXPECT_TRUE(has(imported.notes, "hidden_size 4096, vocab_size 32000"));
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

}  // namespace
}  // namespace plimsoll
