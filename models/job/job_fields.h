// The fields of job files, in the order in which they are written. This header is internal to
// models/job.
#pragma once

#include <array>
#include <string_view>

#include "base/field_list.h"
#include "models/job/job.h"
#include "models/job/job_limits.h"
#include "models/job/job_words.h"

namespace plimsoll::job_fields {

inline constexpr std::array<std::string_view, 5> kOptimizers = {"adamw", "sgd", "lamb", "muon",
                                                                "adafactor"};
inline constexpr double kMostRate = 1e3, kMostDecay = 1e3, kMostScale = 0x1p100, kMostNorm = 1e9;
inline constexpr double kMostInterval = 1e9, kMostShare = 1e12;
inline constexpr double kMostFactor = 1e6;  // of weights, losses and capacity
inline constexpr double kLeastFactor = 1e-6;

inline constexpr auto kLatent = [](auto& fields, auto& latent) {
  fields.optional("q_rank", latent.q_rank, {1, kMostHidden});
  fields.required("kv_rank", latent.kv_rank, {1, kMostHidden});
  fields.required("nope", latent.nope, {1, kMostHeadSize});
  fields.required("rope", latent.rope, {2, kMostHeadSize});
  fields.required("value", latent.value, {1, kMostHeadSize});
};

inline constexpr auto kRotaryScale = [](auto& fields, auto& scale) {
  fields.required("kind", scale.kind, kRotaryScalings);
  fields.defaulted("factor", scale.factor, {kLeastFactor, kMostFactor});
  if (fields.kReads || scale.kind == RotaryScaling::llama3 || scale.kind == RotaryScaling::yarn) {
    fields.optional("original", scale.original, {1, kMostSequence});
    fields.optional("low", scale.low, {kLeastFactor, kMostFactor});
    fields.optional("high", scale.high, {kLeastFactor, kMostFactor});
  }
  fields.unless(true, "whole_columns", scale.whole_columns);
  fields.unless(1, "amplitude", scale.amplitude, {kLeastFactor, kMostFactor});
};

inline constexpr auto kQueryGrowth = [](auto& fields, auto& growth) {
  fields.required("factor", growth.factor, {kLeastFactor, kMostFactor});
  fields.required("span", growth.span, {1, kMostSequence});
  fields.optional("ahead", growth.ahead, {0, kMostSequence});
};

inline constexpr auto kAttention = [](auto& fields, auto& job) {
  fields.optional("head_size", job.head_size, {1, kMostHeadSize});
  fields.defaulted("qkv_bias", job.qkv_bias);
  fields.optional("out_bias", job.out_bias);
  fields.optional("mlp_bias", job.mlp_bias);
  fields.optional("qk_norm", job.qk_norm);
  fields.optional("qk_norm_across_heads", job.qk_norm_across_heads);
  fields.optional("qk_l2_norm", job.qk_l2_norm);
  fields.optional("sinks", job.sinks);
  fields.optional("alibi", job.alibi);
  fields.optional("alibi_scaled", job.alibi_scaled);
  fields.optional("head_bias", job.head_bias);
  fields.optional("score_cap", job.score_cap, {kLeastCap, kMostCap});
  fields.optional("logit_cap", job.logit_cap, {kLeastCap, kMostCap});
  fields.optional("latent", job.latent, kLatent);
  fields.optional("window", job.window, {1, kMostSequence});
  fields.optional("window_chunks", job.window_chunks);
  fields.optional("window_pattern", job.window_pattern);
  fields.optional("window_rotary_base", job.rotary.window_base, {1, kMostBase});
  if (fields.kReads || !(job.alibi || job.learned_positions))
    fields.defaulted("rotary_base", job.rotary.base, {1, kMostBase});
  fields.unless(1, "rotary_fraction", job.rotary.fraction, {0, 1});
  fields.optional("rotary_pattern", job.rotary.pattern);
  fields.unless(RotaryScale(), "rotary_scaling", job.rotary.scale, kRotaryScale);
  fields.unless(QueryGrowth(), "query_growth", job.rotary.growth, kQueryGrowth);
  fields.optional("learned_positions", job.learned_positions);
  fields.optional("attention_gate", job.attention_gate);
  fields.unless(1, "embedding_factor", job.factors.embedding, {kLeastFactor, kMostFactor});
  fields.unless(1, "branch_factor", job.factors.branch, {kLeastFactor, kMostFactor});
  fields.unless(1, "score_factor", job.factors.scores, {kLeastFactor, kMostFactor});
  fields.unless(1, "logit_factor", job.factors.logits, {kLeastFactor, kMostFactor});
  fields.optional("gate_limit", job.activation_params.limit, {kLeastCap, kMostCap});
  fields.unless(1, "gate_sharpness", job.activation_params.sharpness, {kLeastFactor, kMostFactor});
  fields.optional("gate_offset", job.activation_params.offset, {-kMostFactor, kMostFactor});
};

inline constexpr auto kExperts = [](auto& fields, auto& experts) {
  fields.required("count", experts.count, {2, kMostExperts});
  fields.required("chosen", experts.chosen, {1, kMostExperts});
  fields.defaulted("ffn_hidden", experts.ffn_hidden, {1, kMostFfn});
  fields.optional("shared_ffn_hidden", experts.shared_ffn_hidden, {0, kMostFfn});
  fields.optional("shared_gate", experts.shared_gate);
  fields.optional("dense_ffn_hidden", experts.dense_ffn_hidden, {0, kMostFfn});
  fields.optional("latent_hidden", experts.latent_hidden, {0, kMostHidden});
  fields.optional("dense_layers", experts.dense_layers, {0, kMostLayers});
  fields.optional("pattern", experts.pattern);
  fields.optional("bias", experts.bias);
  fields.optional("router_bias", experts.router_bias);
  fields.optional("scaled_input", experts.scaled_input);
  fields.defaulted("score", experts.score, kRouterScores);
  fields.defaulted("normalized", experts.normalized);
  fields.unless(1, "scale", experts.scale, {0, kMostFactor});
  if (fields.kReads || experts.groups > 1) {
    fields.defaulted("groups", experts.groups, {1, kMostExperts});
    fields.defaulted("top_groups", experts.top_groups, {1, kMostExperts});
    fields.defaulted("group_best", experts.group_best, {1, kMostExperts});
  }
  fields.optional("capacity", experts.capacity, {0, kMostFactor});
  fields.unless(Experts().load, "load", experts.load, {1, kMostFactor});
  fields.optional("drop_overflow", experts.drop_overflow);
  fields.optional("balance_loss", experts.balance_loss, {0, kMostFactor});
  fields.unless(1, "balance_sequences", experts.balance_sequences, {1, kMostBatch});
  fields.optional("balance_layers", experts.balance_layers);
  fields.optional("z_loss", experts.z_loss, {0, kMostFactor});
  fields.optional("selection_bias", experts.selection_bias, {0, kMostFactor});
};

inline constexpr auto kMultiToken = [](auto& fields, auto& mtp) {
  fields.defaulted("depths", mtp.depths, {1, kMostDepths});
  fields.defaulted("loss_weight", mtp.loss_weight, {0, kMostFactor});
};

inline constexpr auto kLlama = [](auto& fields, auto& job) {
  kAttention(fields, job);
  fields.optional("activation", job.activation, kActivations);
  fields.optional("norm", job.norm, kNorms);
  fields.unless(true, "norm_bias", job.norm_bias);
  fields.optional("embedding_norm", job.embedding_norm);
  fields.optional("norm_place", job.norm_place, kNormPlaces);
  fields.optional("mlp_input", job.mlp_input, kMlpInputs);
  fields.optional("experts", job.experts, kExperts);
  fields.optional("mtp", job.mtp, kMultiToken);
};

inline constexpr auto kBranch = [](auto& fields, auto& branch) {
  fields.required("layers", branch.layers, {1, kMostLayers});
  fields.required("hidden", branch.hidden, {1, kMostHidden});
  fields.required("heads", branch.heads, {1, kMostHeads});
  if constexpr (kReading<decltype(fields)>) branch.ffn_hidden = 4 * branch.hidden;
  fields.defaulted("ffn_hidden", branch.ffn_hidden, {1, kMostFfn});
};

inline constexpr auto kMasked = [](auto& fields, auto& job) {
  fields.defaulted("token_types", job.token_types, {0, kMostSequence});
  fields.defaulted("mask_probability", job.mask_probability, {0, 1});
  if (job.family == Family::bert) fields.defaulted("pooler", job.pooler);
  if (job.family == Family::ernie) fields.required("branch", job.branch, kBranch);
};

inline constexpr auto kGroup = [](auto& fields, auto& group) {
  fields.required("match", group.match);
  fields.optional("weight_decay", group.weight_decay, {0, kMostDecay});
  fields.optional("clip", group.clip);
  fields.optional("learning_rate_factor", group.learning_rate_factor, {0, kMostRate});
};

inline constexpr auto kOptimizer = [](auto& fields, auto& optimizer) {
  fields.defaulted("kind", optimizer.kind, kOptimizers);
  fields.defaulted("learning_rate", optimizer.learning_rate, {0, kMostRate});
  if (optimizer.kind == OptimizerKind::sgd || optimizer.kind == OptimizerKind::muon)
    fields.defaulted("momentum", optimizer.momentum, {0, 1});
  if (optimizer.kind != OptimizerKind::sgd && optimizer.kind != OptimizerKind::adafactor) {
    fields.defaulted("beta1", optimizer.beta1, {0, 1});
    fields.defaulted("beta2", optimizer.beta2, {0, 1});
    fields.defaulted("epsilon", optimizer.epsilon, {0, 1});
  }
  fields.defaulted("weight_decay", optimizer.weight_decay, {0, kMostDecay});
  fields.optional("groups", optimizer.groups, kGroup);
};

inline constexpr auto kLossScale = [](auto& fields, auto& scale) {
  fields.defaulted("initial", scale.initial, {1, kMostScale});
  fields.defaulted("growth", scale.growth, {1, kMostRate});
  fields.defaulted("backoff", scale.backoff, {0, 1});
  fields.defaulted("growth_interval", scale.growth_interval, {1, kMostInterval});
};

inline constexpr auto kLengthShare = [](auto& fields, auto& length) {
  fields.required("tokens", length.tokens, {1, kMostSequence});
  fields.defaulted("share", length.share, {0, kMostShare});
};

inline constexpr auto kAdapters = [](auto& fields, auto& adapters) {
  fields.required("rank", adapters.rank, {1, kMostHidden});
  fields.defaulted("scale", adapters.scale, {kLeastFactor, kMostFactor});
  fields.unless(0, "dropout", adapters.dropout, {0, 1});
  fields.required("targets", adapters.targets, kAdapterTargets);
  fields.optional("trained", adapters.trained);
};

/// Sizes that a file leaves out follow from those before them.
inline constexpr auto kJob = [](auto& fields, auto& job) {
  fields.required("name", job.name);
  fields.required("family", job.family, kFamilies);
  fields.required("layers", job.layers, {1, kMostLayers});
  fields.required("hidden", job.hidden, {1, kMostHidden});
  fields.required("heads", job.heads, {1, kMostHeads});
  if constexpr (kReading<decltype(fields)>) job.kv_heads = job.heads;
  fields.defaulted("kv_heads", job.kv_heads, {1, kMostHeads});
  if constexpr (kReading<decltype(fields)>) job.ffn_hidden = 4 * job.hidden;
  fields.defaulted("ffn_hidden", job.ffn_hidden, {1, kMostFfn});
  fields.required("vocab", job.vocab, {2, kMostVocab});
  fields.required("sequence", job.sequence, {1, kMostSequence});
  fields.optional("lengths", job.lengths, kLengthShare);
  fields.optional("packing", job.packing, kPackings);
  fields.optional("balanced", job.balanced);
  fields.required("tied_embeddings", job.tied_embeddings);
  fields.optional("norm_epsilon", job.norm_epsilon, {0, 1});
  fields.optional("exact_gelu", job.activation_params.exact);
  if (job.family == Family::llama) kLlama(fields, job);
  if (job.family == Family::bert || job.family == Family::ernie) kMasked(fields, job);
  fields.required("global_batch", job.global_batch, {1, kMostBatch});
  fields.required("precision", job.precision, kPrecisions);
  fields.optional("fp32_parameters", job.fp32_parameters);
  fields.optional("frozen", job.frozen);
  fields.optional("adapters", job.adapters, kAdapters);
  fields.optional("frozen_weights", job.frozen_weights, kFrozenWeights);
  fields.defaulted("optimizer", job.optimizer, kOptimizer);
  fields.defaulted("clip_norm", job.clip_norm, {0, kMostNorm});
  fields.defaulted("dropout", job.dropout, {0, 1});
  fields.defaulted("seed", job.seed, {0, kMostSeed});
  fields.optional("loss_scale", job.loss_scale, kLossScale);
};

}  // namespace plimsoll::job_fields
