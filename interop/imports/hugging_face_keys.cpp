// The tables of keys of a config.json.
#include "interop/imports/hugging_face_keys.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace plimsoll {

bool is_off(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == 0;
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.empty();
}

namespace {

bool at_most_one(const Json& value) {
  return is_off(value) || (value.is_number() && value.get<double>() <= 1);
}

bool is_four(const Json& value) { return value.is_null() || value == 4; }

/// All norms of a job have this epsilon (runtime/cpu and runtime/cuda).
bool is_epsilon_of_a_job(const Json& value) { return value.is_null() || value == 1e-5; }

constexpr std::string_view kNoLatents =
    "it is not known what latent attention models of this type have";
// Other model types have a key that switches these on (models/presets/architectures).
constexpr std::string_view kNoExperts =
    "it is not known which layers of models of this type have experts";
constexpr std::string_view kNoQkNorm =
    "it is not known which norms of queries and keys models of this type have";
constexpr std::string_view kNoBias =
    "it is not known which layers of models of this type have biases";
constexpr std::string_view kOneAfterOther =
    "it is not known what the MLP of models of this type reads in addition to attention";
constexpr std::string_view kNoCaps =
    "it is not known that models of this type cap or clip scores, logits or projections";
constexpr std::string_view kOnlyAttention =
    "every layer of a job has attention, no state space and no linear attention";
constexpr std::string_view kNoIndexer =
    "attention of a job reads all tokens of its window: it has no indexer that picks some, and no "
    "compressed ones";
constexpr std::string_view kNoGate = "attention of a job has no gate on its output";
constexpr std::string_view kNoShared =
    "it is not known which shared experts models of this type have";
constexpr std::string_view kNoSinks =
    "it is not known which layers of models of this type have sinks";
constexpr std::string_view kOneEmbedding = "a job has one embedding of its tokens";
constexpr std::string_view kSameLayers = "layers of a job differ only by windows and experts";
constexpr std::string_view kOneSide = "a job is an encoder or a decoder, without cross-attention";
constexpr std::string_view kNoMtp =
    "it is not known what the MTP modules of models of this type are";

constexpr KeyRule kRules[] = {
    {"num_local_experts", at_most_one, kNoExperts},
    {"num_experts", at_most_one, kNoExperts},
    {"n_routed_experts", at_most_one, kNoExperts},
    {"moe_num_experts", at_most_one, kNoExperts},
    {"num_moe_experts", at_most_one, kNoExperts},
    {"moe_intermediate_size", is_off, kNoExperts},
    {"mlp_layer_types", is_off, kNoExperts},
    {"first_k_dense_replace", is_off, kNoExperts},
    {"shared_expert_intermediate_size", is_off, kNoShared},
    {"moe_shared_expert_intermediate_size", is_off, kNoShared},
    {"shared_intermediate_size", is_off, kNoShared},
    {"n_shared_experts", is_off, kNoShared},
    {"num_shared_experts", is_off, kNoShared},
    {"moe_num_shared_experts", is_off, kNoShared},
    {"zero_expert_num", is_off, "every expert of a job has weights"},
    {"num_hash_layers", is_off, "a router of a job has weights"},
    {"kv_lora_rank", is_off, kNoLatents},
    {"q_lora_rank", is_off, kNoLatents},
    {"o_lora_rank", is_off, "the output projection of a job is one matrix"},
    {"num_nextn_predict_layers", is_off, kNoMtp},
    {"mtp_num_hidden_layers", is_off, kNoMtp},
    {"num_mtp_modules", is_off, kNoMtp},
    {"qk_layernorm", is_off, kNoQkNorm, &Job::qk_norm},
    {"use_qk_norm", is_off, kNoQkNorm, &Job::qk_norm},
    {"qk_norm", is_off, kNoQkNorm, &Job::qk_norm},
    {"qkv_bias", is_off, kNoBias, &Job::qkv_bias},
    {"use_qkv_bias", is_off, kNoBias, &Job::qkv_bias},
    {"attention_bias", is_off, kNoBias},
    {"attention_out_bias", is_off, kNoBias},
    {"mlp_bias", is_off, kNoBias},
    {"use_bias", is_off, kNoBias},
    {"bias", is_off, kNoBias},
    {"lm_head_bias", is_off, "the head of a job has no bias"},
    {"use_parallel_residual", is_off, kOneAfterOther},
    {"parallel_attn", is_off, kOneAfterOther},
    {"use_bidirectional_attention", is_off,
     "the family of a job decides whether attention is causal"},
    {"alibi", is_off, "it is not known that models of this type have ALiBi"},
    {"expansion_ratio", is_four, "the MLP of a job is four times as wide as hidden, or has a key"},
    {"apply_residual_connection_post_layernorm", is_off, "a job adds what the norm read"},
    {"attn_logit_softcapping", is_off, kNoCaps},
    {"final_logit_softcapping", is_off, kNoCaps},
    {"clip_qkv", is_off, kNoCaps},
    {"layers_block_type", is_off, kOnlyAttention},
    {"block_types", is_off, kOnlyAttention},
    {"hybrid_*", is_off, kOnlyAttention},
    {"lru_width", is_off, kOnlyAttention},
    {"mamba_*", is_off, kOnlyAttention},
    {"ssm_*", is_off, kOnlyAttention},
    {"state_size", is_off, kOnlyAttention},
    {"conv_*", is_off, kOnlyAttention},
    {"attn_type_list", is_off, kOnlyAttention},
    {"layer_group_size", at_most_one, kOnlyAttention},
    {"full_attn_idxs", is_off, kOnlyAttention},
    {"linear_*", is_off, kOnlyAttention},
    {"attn_layer_period", at_most_one, kOnlyAttention},
    {"attn_layer_indices", is_off, kOnlyAttention},
    {"full_attention_interval", at_most_one, kOnlyAttention},
    {"index_*", is_off, kNoIndexer},
    {"sparse_config", is_off, kNoIndexer},
    {"compress_*", is_off, kNoIndexer},
    {"attn_output_gate", is_off, kNoGate},
    {"use_head_wise_attn_gate", is_off, kNoGate},
    {"hc_mult", at_most_one, "a job has one residual stream"},
    {"block_configs", is_off, kSameLayers},
    {"num_query_heads", is_off, kSameLayers},
    {"ffn_multipliers", is_off, kSameLayers},
    {"num_key_value_heads_per_layer", is_off, kSameLayers},
    {"swa_*", is_off, kSameLayers},
    {"add_swa_attention_sink_bias", is_off, kNoSinks},
    {"add_full_attention_sink_bias", is_off, kNoSinks},
    {"v_head_dim", is_off, "keys and values of a job are equally wide without latent attention"},
    {"num_kv_shared_layers", is_off, kSameLayers},
    {"hidden_size_per_layer_input", is_off, kOneEmbedding},
    {"ngram_*", is_off, kOneEmbedding},
    {"laurel_rank", is_off, "a layer of a job has one residual branch for attention"},
    {"is_encoder_decoder", is_off, kOneSide},
    {"add_cross_attention", is_off, kOneSide},
    {"cross_attention_layers", is_off, kOneSide},
    {"is_decoder", is_off, "the family of a job decides whether attention is causal"},
    {"use_task_id", is_off, "a bert job has tables of words, positions and token types alone"},
    {"pruned_heads", is_off, "all layers of a job have as many heads"},
};

constexpr std::string_view kEpsilon = "norms of a job have an epsilon of 1e-05";

constexpr NotedKey kNoted[] = {
    {"rms_norm_eps", is_epsilon_of_a_job, kEpsilon},
    {"layer_norm_eps", is_epsilon_of_a_job, kEpsilon},
    {"layer_norm_epsilon", is_epsilon_of_a_job, kEpsilon},
    {"norm_eps", is_epsilon_of_a_job, kEpsilon},
    {"norm_epsilon", is_epsilon_of_a_job, kEpsilon},
    {"router_aux_loss_coef", is_off,
     "the library balances experts over all layers at once, a job in each layer: balance_loss of "
     "its experts states it"},
    {"no_rope_layer_interval", is_off,
     "layers without rotary embeddings have them in a job: parameters are the same"},
    {"swiglu_limit", is_off, "it clamps what the activation reads; a job leaves that out"},
    {"auto_map", is_off, "code next to the file is not followed; the shape is the model_type's"},
    {"quantization_config", is_off, "it states how weights are stored; training has --precision"},
    {"vision_config", is_off, "the model for pictures is left out"},
    {"audio_config", is_off, "the model for sound is left out"},
};

constexpr std::string_view kSilent[] = {
    // of the file
    "_attn_implementation_autoset", "_name_or_path", "architectures", "attn_implementation",
    "dtype", "model_type", "torch_dtype", "transformers_version",
    // of the library
    "output_attentions", "output_hidden_states", "pretraining_tp", "return_dict",
    "tie_encoder_decoder", "torchscript", "use_bfloat16", "use_cache", "use_mrope",
    // numbers inside an op, and initial weights
    "_sliding_window_pattern", "attention_softmax_in_fp32", "chunk_size_feed_forward",
    "initializer_range", "n_ctx", "no_rope_layers", "rope_local_base_freq",
    "sliding_window_pattern", "original_max_position_embeddings", "reorder_and_upcast_attn",
    "scale_attention_softmax_in_fp32", "scale_attn_by_inverse_layer_idx", "scale_attn_weights",
    // what the class of the model says already, and how a rank counts
    "ep_size", "hidden_activation", "mlp_type", "norm_type", "topk_method",
    // other tasks than training on tokens
    "classifier_dropout", "finetuning_task", "id2label", "label2id", "num_labels", "problem_type",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
    "summary_use_proj", "task_specific_params", "task_type_vocab_size",
    // generation
    "bad_words_ids", "begin_suppress_tokens", "cache_implementation", "cross_attention_hidden_size",
    "diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty", "length_penalty", "max_length", "min_length",
    "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "output_scores",
    "prefix", "remove_invalid_values", "repetition_penalty", "return_dict_in_generate",
    "suppress_tokens", "temperature", "tf_legacy_loss", "top_k", "top_p", "typical_p"};

}  // namespace

std::span<const KeyRule> key_rules() { return kRules; }
std::span<const NotedKey> noted_keys() { return kNoted; }

bool is_silent(std::string_view key) {
  return key.ends_with("_token_id") || key.ends_with("_token_index") ||
         std::ranges::find(kSilent, key) != std::end(kSilent);
}

}  // namespace plimsoll
