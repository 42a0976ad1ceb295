// The tables of keys of a config.json.
#include "imports/hugging_face_keys.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace plimsoll {
namespace {

/// null, false, 0, or an empty list, object or text.
bool is_off(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == 0;
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.empty();
}

bool at_most_one(const Json& value) {
  return is_off(value) || (value.is_number() && value.get<double>() <= 1);
}

bool is_four(const Json& value) { return value.is_null() || value == 4; }

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
    "it is not known what the MLP of models of this type reads beside attention";
constexpr std::string_view kNoCaps =
    "it is not known that models of this type cap or clip scores, logits or projections";
constexpr std::string_view kOnlyAttention =
    "every layer of a job has attention, no state space and no linear attention";
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
    {"kv_lora_rank", is_off, kNoLatents},
    {"q_lora_rank", is_off, kNoLatents},
    {"num_nextn_predict_layers", is_off, kNoMtp},
    {"qk_layernorm", is_off, kNoQkNorm},
    {"use_qk_norm", is_off, kNoQkNorm},
    {"qk_norm", is_off, kNoQkNorm},
    {"attention_bias", is_off, kNoBias},
    {"mlp_bias", is_off, kNoBias},
    {"use_bias", is_off, kNoBias},
    {"bias", is_off, kNoBias},
    {"lm_head_bias", is_off, "the head of a job has no bias"},
    {"use_parallel_residual", is_off, kOneAfterOther},
    {"parallel_attn", is_off, kOneAfterOther},
    {"use_bidirectional_attention", is_off, "a job says by its family whether attention is causal"},
    {"alibi", is_off, "it is not known that models of this type have ALiBi"},
    {"expansion_ratio", is_four, "the MLP of a job is four times as wide as hidden, or has a key"},
    {"apply_residual_connection_post_layernorm", is_off, "a job adds what the norm read"},
    {"attn_logit_softcapping", is_off, kNoCaps},
    {"final_logit_softcapping", is_off, kNoCaps},
    {"clip_qkv", is_off, kNoCaps},
    {"layers_block_type", is_off, kOnlyAttention},
    {"hybrid_override_pattern", is_off, kOnlyAttention},
    {"mamba_d_state", is_off, kOnlyAttention},
    {"ssm_cfg", is_off, kOnlyAttention},
    {"linear_num_key_heads", is_off, kOnlyAttention},
    {"linear_conv_kernel_dim", is_off, kOnlyAttention},
    {"is_encoder_decoder", is_off, kOneSide},
    {"add_cross_attention", is_off, kOneSide},
    {"cross_attention_layers", is_off, kOneSide},
    {"is_decoder", is_off, "a job says by its family whether attention is causal"},
    {"use_task_id", is_off, "a bert job has tables of words, positions and token types alone"},
    {"pruned_heads", is_off, "all layers of a job have as many heads"},
};

constexpr NotedKey kNoted[] = {
    {"no_rope_layer_interval", is_off,
     "layers without rotary embeddings have them in a job: parameters are the same"},
    {"swiglu_limit", is_off, "it clamps what the activation reads; a job leaves that out"},
    {"auto_map", is_off, "code beside the file is not followed; the shape is the model_type's"},
    {"quantization_config", is_off, "it says how weights are stored; training has --precision"},
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
    "initializer_range", "layer_norm_eps", "layer_norm_epsilon", "n_ctx", "norm_eps",
    "norm_epsilon", "no_rope_layers", "rope_local_base_freq", "sliding_window_pattern",
    "original_max_position_embeddings", "reorder_and_upcast_attn", "rms_norm_eps",
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
