// The rules inside a job, whether it is from a file or not.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "models/job/examples.h"
#include "models/job/job_fields.h"

namespace plimsoll {
namespace {

[[noreturn]] void refuse(const std::string& file, const char* pointer, const std::string& message) {
  throw InputError(file, pointer, message);
}

/// The norms and inputs of a llama layer that exclude each other.
void check_layer(const Job& job, const std::string& file) {
  if (!job.norm_bias && job.norm != NormKind::layer_norm)
    refuse(file, "/norm_bias", "it is of layer norms; RMS norms have no bias");
  if (job.mlp_input == MlpInput::shared_norm && job.norm_place != NormPlace::before) {
    refuse(file, "/mlp_input",
           "found \"shared_norm\"; it needs norm_place \"before\", so that attention has a norm");
  }
  if (job.mlp_input == MlpInput::own_norm && job.norm_place == NormPlace::after) {
    refuse(file, "/mlp_input",
           "found \"own_norm\"; with norm_place \"after\" the MLP reads no norm");
  }
  const ActivationParams& gate = job.activation_params;
  const bool has_gelu = job.family != Family::llama || job.activation == Activation::gelu ||
                        job.activation == Activation::geglu;
  if (gate.exact && !has_gelu) refuse(file, "/exact_gelu", "the activation is no GELU");
  if (job.activation != Activation::swiglu &&
      (gate.limit > 0 || gate.sharpness != 1 || gate.offset != 0))
    refuse(file, "/activation", "gate_limit, gate_sharpness and gate_offset are of swiglu");
}

/// "/branch" of an ERNIE job, absent elsewhere.
void check_branch(const Job& job, const std::string& file) {
  if (job.branch.has_value() != (job.family == Family::ernie)) {
    refuse(file, job.branch ? "/branch" : "", "family ernie has a branch, no other family has one");
  }
  if (!job.branch) return;
  const Branch& branch = *job.branch;
  if (branch.hidden % branch.heads != 0) {
    refuse(file, "/branch/heads",
           fmt::format("found {} heads; they must divide hidden {}", branch.heads, branch.hidden));
  }
  if (job.tied_embeddings) {
    refuse(file, "/tied_embeddings",
           "found true; the branch is not as wide as the embedding, so its head has a table of its "
           "own");
  }
}

/// Latent attention has sizes of its own, as many keys as queries, and neither biases nor norms of
/// heads.
void check_latent(const Job& job, const std::string& file) {
  const Latent& latent = *job.latent;
  if (latent.rope % 2 != 0) {
    refuse(
        file, "/latent/rope",
        fmt::format("found {}; rotary embeddings turn pairs and need an even width", latent.rope));
  }
  const auto without = [&](bool stated, const char* pointer, const char* what) {
    if (stated) refuse(file, pointer, fmt::format("a job with latent attention has {}", what));
  };
  without(job.kv_heads != job.heads, "/kv_heads", "a key and a value of every head");
  without(job.head_size != 0, "/head_size", "the sizes of heads in latent");
  without(job.qkv_bias, "/qkv_bias", "no biases in attention");
  without(job.out_bias, "/out_bias", "no biases in attention");
  without(job.qk_norm, "/qk_norm", "norms of its latents, and none of heads");
  without(job.qk_l2_norm, "/qk_l2_norm", "norms of its latents, and none of heads");
  without(job.alibi, "/alibi", "columns that are turned");
  without(job.learned_positions, "/learned_positions", "columns that are turned");
  without(!job.rotary.pattern.empty(), "/rotary_pattern", "columns that are turned");
  without(job.rotary.fraction != 1, "/rotary_fraction", "the columns that are turned in latent");
}

/// Rotary embeddings turn pairs of a head's columns.
void check_rotary(const Job& job, const std::string& file) {
  const std::int64_t head = head_width(job);
  if (head % 2 != 0) {
    refuse(file, job.head_size > 0 ? "/head_size" : "/heads",
           fmt::format("heads are {} wide; rotary embeddings turn pairs and need an even width",
                       head));
  }
  const double turned = double(head) * job.rotary.fraction;
  const bool whole = std::abs(turned - std::round(turned)) < 1e-6;
  if (!whole || turned < 1.5 || turned > double(head) || std::llround(turned) % 2 != 0) {
    refuse(file, "/rotary_fraction",
           fmt::format("found {}; it is {:g} of the {} columns of a head, and an even number of "
                       "them from 2 on is required",
                       job.rotary.fraction, turned, head));
  }
}

/// Nothing is turned.
void check_unturned(const Job& job, const std::string& file) {
  const auto without = [&](bool stated, const char* pointer) {
    if (!stated) return;
    refuse(file, pointer,
           fmt::format("a job with {} has no rotary embeddings",
                       job.alibi ? "alibi" : "learned_positions"));
  };
  without(job.rotary.fraction != 1, "/rotary_fraction");
  without(job.rotary.window_base > 0, "/window_rotary_base");
  without(job.rotary.base != Rotary().base, "/rotary_base");
  without(!job.rotary.pattern.empty(), "/rotary_pattern");
  without(job.rotary.scale != RotaryScale(), "/rotary_scaling");
  without(job.rotary.growth != QueryGrowth(), "/query_growth");
  if (job.alibi && job.learned_positions)
    refuse(file, "/learned_positions", "a job has either these or alibi");
  if (job.learned_positions && job.mtp)
    refuse(file, "/mtp", "a job with learned_positions has no MTP modules");
}

/// The kinds differ in what they read.
void check_rotary_scale(const Job& job, const std::string& file) {
  const RotaryScale& scale = job.rotary.scale;
  const bool by_turns = scale.kind == RotaryScaling::llama3 || scale.kind == RotaryScaling::yarn;
  if (by_turns && !(scale.original > 0 && scale.low > 0 && scale.high >= scale.low))
    refuse(file, "/rotary_scaling",
           fmt::format("{} needs original, and low up to high", to_text(scale.kind)));
  const bool turns = scale.original > 0 || scale.low > 0 || scale.high > 0;
  if (!by_turns && turns)
    refuse(file, "/rotary_scaling",
           fmt::format("original, low and high are of llama3 and yarn, not of {}",
                       to_text(scale.kind)));
  if (scale.kind == RotaryScaling::none && scale.factor != 1)
    refuse(file, "/rotary_scaling/factor", "kind none divides no angle");
  if (by_turns && job.rotary.base <= 1)
    refuse(file, "/rotary_base", "with a base of 1 all angles are equal");
  if (scale.kind != RotaryScaling::yarn && !scale.whole_columns)
    refuse(file, "/rotary_scaling/whole_columns", "it is of yarn");
}

void check_windows(const Job& job, const std::string& file) {
  if (!job.window_pattern.empty() && job.window == 0)
    refuse(file, "/window_pattern", "it states which layers have a window, and there is none");
  if (job.window_chunks && job.window == 0)
    refuse(file, "/window_chunks", "it states what the window is, and there is none");
  if (job.rotary.window_base > 0 && job.window == 0)
    refuse(file, "/window_rotary_base", "it is of layers that have a window, and there is none");
}

void check_llama_attention(const Job& job, const std::string& file) {
  if (job.latent) {
    check_latent(job, file);
  } else if (job.alibi || job.learned_positions) {
    check_unturned(job, file);
  } else {
    check_rotary(job, file);
  }
  check_windows(job, file);
  check_rotary_scale(job, file);
  if (job.alibi_scaled && !job.alibi)
    refuse(file, "/alibi_scaled", "it is of alibi, which is not on");
  if (job.qk_norm_across_heads && !job.qk_norm)
    refuse(file, "/qk_norm_across_heads", "it is how qk_norm norms, which is not on");
  if (job.qk_l2_norm && job.qk_norm)
    refuse(file, "/qk_l2_norm", "it is a norm without a weight, and qk_norm has one");
}

void check_attention(const Job& job, const std::string& file) {
  if (job.head_size == 0 && !job.latent && job.hidden % job.heads != 0) {
    const char* or_size = job.family == Family::llama ? ", or head_size states their width" : "";
    refuse(file, "/heads",
           fmt::format("found {} heads; they must divide hidden {}{}", job.heads, job.hidden,
                       or_size));
  }
  const bool grouped = job.family == Family::gpt || job.family == Family::llama;
  if (!grouped && job.kv_heads != job.heads) {
    refuse(file, "/kv_heads",
           fmt::format("found {}; only families gpt and llama have other kv_heads than heads ({})",
                       job.kv_heads, job.heads));
  }
  if (job.heads % job.kv_heads != 0) {
    refuse(file, "/kv_heads",
           fmt::format("found {}; it must divide the {} heads", job.kv_heads, job.heads));
  }
  if (job.family == Family::llama) check_llama_attention(job, file);
}

void check_masked(const Job& job, const std::string& file) {
  if (job.family != Family::bert && job.family != Family::ernie) return;
  if (!(job.mask_probability > 0 && job.mask_probability <= 1)) {
    refuse(file, "/mask_probability",
           fmt::format("found {}; a number above 0 and up to 1 is required", job.mask_probability));
  }
  if (job.token_types < 0 || job.token_types > job.sequence) {
    refuse(file, "/token_types",
           fmt::format("found {}; an integer from 0 to the sequence length is required",
                       job.token_types));
  }
}

std::int64_t layers_with_experts(const Job& job) {
  std::int64_t count = 0;
  for (std::int64_t layer = 0; layer < job.layers; ++layer) count += has_experts(job, layer);
  return count;
}

struct ExpertRule {
  bool kept;
  const char* pointer;
  std::string message;
};

void check_experts(const Job& job, const std::string& file) {
  if (!job.experts) return;
  const Experts& experts = *job.experts;
  const std::int64_t each = experts.count / experts.groups;
  const ExpertRule rules[] = {
      {job.family == Family::llama, "/experts", "only family llama has experts"},
      {job.activation == Activation::swiglu || job.activation == Activation::geglu, "/activation",
       "experts are gated: \"swiglu\" or \"geglu\" is required"},
      {!job.mlp_bias, "/mlp_bias", "found true; experts.bias says whether experts have biases"},
      {experts.dense_layers < job.layers, "/experts/dense_layers",
       fmt::format("found {}; fewer than the {} layers are required", experts.dense_layers,
                   job.layers)},
      {layers_with_experts(job) > 0, "/experts/pattern", "no layer has experts"},
      {!experts.shared_gate || experts.shared_ffn_hidden > 0, "/experts/shared_gate",
       "it is of a shared MLP, and shared_ffn_hidden is 0"},
      {experts.balance_sequences == 1 || experts.balance_loss > 0, "/experts/balance_sequences",
       "it is of an auxiliary loss, and balance_loss is 0"},
      {!experts.balance_layers || experts.balance_loss > 0, "/experts/balance_layers",
       "it is of an auxiliary loss, and balance_loss is 0"},
      {job.global_batch % experts.balance_sequences == 0, "/experts/balance_sequences",
       fmt::format("found {}; it must divide the global batch of {}", experts.balance_sequences,
                   job.global_batch)},
      {experts.count % experts.groups == 0, "/experts/groups",
       fmt::format("found {}; it must divide the {} experts", experts.groups, experts.count)},
      {experts.top_groups <= experts.groups, "/experts/top_groups",
       fmt::format("found {} of {} groups", experts.top_groups, experts.groups)},
      {experts.group_best <= each, "/experts/group_best",
       fmt::format("found {}; a group has {} experts", experts.group_best, each)},
      {experts.chosen <= experts.top_groups * each, "/experts/chosen",
       fmt::format("found {}; a token chooses among {} experts", experts.chosen,
                   experts.top_groups * each)},
  };
  for (const ExpertRule& rule : rules) {
    if (!rule.kept) refuse(file, rule.pointer, rule.message);
  }
}

void check_adapters(const Job& job, const std::string& file) {
  const Adapters& adapters = *job.adapters;
  const auto has = [&](AdapterTarget target) { return adapters.targets.has(target); };
  const bool parts =
      has(AdapterTarget::query) || has(AdapterTarget::key) || has(AdapterTarget::value);
  const bool halves = has(AdapterTarget::gate) || has(AdapterTarget::up);
  const bool gated = job.family == Family::llama &&
                     (job.activation == Activation::swiglu || job.activation == Activation::geglu);
  const bool of_mlp = halves || has(AdapterTarget::gate_up) || has(AdapterTarget::down);
  const auto check = [&](bool kept, const char* message) {
    if (!kept) refuse(file, "/adapters/targets", message);
  };
  if (adapters.dropout >= 1)
    refuse(file, "/adapters/dropout", "a number from 0 to below 1 is required");
  check(!adapters.targets.empty(), "there are none");
  check(!(parts && has(AdapterTarget::qkv)), "query, key and value exclude qkv");
  check(!(halves && has(AdapterTarget::gate_up)), "gate and up exclude gate_up");
  const Latent latent = job.latent.value_or(Latent());
  check(!job.latent ||
            !(has(AdapterTarget::key) || has(AdapterTarget::value) || has(AdapterTarget::qkv)),
        "latent attention has no products of key, value and qkv");
  check(latent.q_rank == 0 || !has(AdapterTarget::query),
        "queries with a latent have query_down and query_up");
  check(latent.q_rank > 0 || !(has(AdapterTarget::query_down) || has(AdapterTarget::query_up)),
        "queries have no latent");
  check(job.latent || !(has(AdapterTarget::kv_down) || has(AdapterTarget::kv_up)),
        "keys and values have no latent");
  check(gated || !(has(AdapterTarget::gate) || has(AdapterTarget::gate_up)),
        "the MLP has no gates");
  if (!of_mlp || !job.experts) return;
  check(has(AdapterTarget::gate) == has(AdapterTarget::up),
        "gate and up of experts have adapters together");
  if (adapters.dropout > 0)
    refuse(file, "/adapters/dropout", "rows of experts have no dropout before their adapters");
}

/// Every layer has something to train, since backward goes through all of them and stages have no
/// others. A norm is frozen as a whole, and 4 bits are not trained.
void check_frozen(const Job& job, const std::string& file) {
  const char* const pointer = job.adapters ? "/adapters" : "/frozen";
  const Graph graph = build_forward(job, 1);
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    const auto trained = [&](const Tensor& tensor) {
      return tensor.role == TensorRole::parameter && tensor.block == BlockId(b);
    };
    if (graph.blocks[b].kind == BlockKind::layer && std::ranges::none_of(graph.tensors, trained))
      refuse(file, pointer, fmt::format("{} trains nothing", graph.blocks[b].name));
  }
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.role == TensorRole::parameter && !tensor.packed.empty())
      refuse(file, pointer, fmt::format("{} is trained, and has 4 bits", tensor.name));
  }
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::layer_norm && op.inputs.size() == 3 &&
        graph.at(op.inputs[1]).role != graph.at(op.inputs[2]).role)
      refuse(file, pointer, "a norm is frozen with its bias, or trained with it");
  }
}

void check_frozen_weights(const Job& job, const std::string& file) {
  if (job.frozen_weights == FrozenWeights::computed) return;
  if (!job.adapters) refuse(file, "/frozen_weights", "weights in 4 bits need adapters");
  if (job.experts) refuse(file, "/frozen_weights", "weights of experts have no form in 4 bits");
}

/// Padding has no loss, and no part in what a step sums over tokens.
void check_lengths(const Job& job, const std::string& file) {
  if (job.lengths.empty()) {
    if (job.packing != Packing::packed)
      refuse(file, "/packing", "it is of lengths, and there are none");
    if (job.balanced) refuse(file, "/balanced", "it is of lengths, and there are none");
    return;
  }
  if (job.family != Family::gpt && job.family != Family::llama)
    refuse(file, "/lengths", "only families gpt and llama have examples of several lengths");
  const Experts experts = job.experts.value_or(Experts());
  if (experts.capacity > 0 || experts.balance_loss > 0 || experts.z_loss > 0 ||
      experts.selection_bias > 0)
    refuse(file, "/lengths",
           "capacity, losses and selection_bias of experts would count padding as tokens");
  const auto trains = [](const LengthShare& one) { return one.share > 0 && one.tokens > 1; };
  if (job.sequence == 1 || std::ranges::none_of(job.lengths, trains))
    refuse(file, "/lengths", "no example has a token behind its first, which could be predicted");
  if (const double examples = examples_per_sequence(job); examples > kMostExamples)
    refuse(file, "/lengths",
           fmt::format("a sequence has {:.0f} examples on average; at most {:.0f} are supported",
                       examples, kMostExamples));
}

void check_optimizer(const Job& job, const std::string& file) {
  const Optimizer& optimizer = job.optimizer;
  if (optimizer.kind >= OptimizerKind::muon && job.experts)
    refuse(file, "/optimizer/kind",
           fmt::format("{} is not built for experts: their matrices are one tensor",
                       job_fields::kOptimizers[std::size_t(optimizer.kind)]));
  if (optimizer.beta1 == 1) refuse(file, "/optimizer/beta1", "must be less than 1");
  if (optimizer.beta2 == 1) refuse(file, "/optimizer/beta2", "must be less than 1");
}

/// Sizes that are fine one by one can still overflow byte counts together.
void check_totals(const Job& job, const std::string& file) {
  const double hidden = static_cast<double>(job.hidden), ffn = static_cast<double>(job.ffn_hidden);
  const std::int64_t depths = job.mtp ? job.mtp->depths : 0;
  const double layers = static_cast<double>(job.layers + depths),
               vocab = static_cast<double>(job.vocab);
  const double sequence = static_cast<double>(job.sequence);
  const double tokens = sequence * static_cast<double>(job.global_batch);
  const Branch branch = job.branch.value_or(Branch{});
  const double narrow = static_cast<double>(branch.hidden),
               branch_layers = static_cast<double>(branch.layers),
               branch_ffn = static_cast<double>(branch.ffn_hidden);
  double heads = static_cast<double>(job.heads * std::max(head_width(job), value_width(job)));
  if (job.latent) heads += static_cast<double>(job.latent->q_rank + job.latent->kv_rank);
  const Latent latent = job.latent.value_or(Latent{});
  const double of_latents = static_cast<double>(latent.q_rank + latent.kv_rank) * 2 * heads;
  const Experts experts = job.experts.value_or(Experts{});
  const double expert_ffn = static_cast<double>(experts.ffn_hidden),
               chosen = static_cast<double>(experts.chosen);
  const double whole_ffn =
                   static_cast<double>(experts.shared_ffn_hidden + experts.dense_ffn_hidden),
               narrow_hidden = static_cast<double>(experts.latent_hidden);
  const double modules = static_cast<double>(depths);
  const double parameters = modules * 2 * hidden * hidden +
                            layers * (5 * hidden * heads + 3 * hidden * ffn + of_latents) +
                            layers * 3 * hidden * static_cast<double>(experts.count) * expert_ffn +
                            layers * hidden * (3 * whole_ffn + 2 * narrow_hidden) +
                            branch_layers * (4 * narrow * narrow + 2 * narrow * branch_ffn) +
                            hidden * (2 * vocab + sequence + narrow) + narrow * vocab;
  if (parameters > kMostParameters) {
    refuse(file, "",
           fmt::format("a job of {:.3g} parameters; at most 2^50 are supported", parameters));
  }
  const double per_layer = static_cast<double>(job.heads) * sequence + 12 * hidden + 8 * heads +
                           2 * ffn + chosen * (2 * hidden + 3 * expert_ffn) + 3 * whole_ffn +
                           2 * narrow_hidden + static_cast<double>(experts.count);
  const double per_branch_layer =
      static_cast<double>(branch.heads) * sequence + 16 * narrow + 2 * branch_ffn;
  const double activations =
      tokens * (layers * per_layer + branch_layers * per_branch_layer + (1 + modules) * vocab);
  if (activations > kMostActivations) {
    refuse(file, "",
           fmt::format("a step of {:.3g} activation elements; at most 2^58 are supported",
                       activations));
  }
}

}  // namespace

void check_job(const Job& job, const std::string& file) {
  if (job.name.empty()) refuse(file, "/name", "a job needs a name");
  check_listed(job, job_fields::kJob, file);
  check_branch(job, file);
  check_attention(job, file);
  check_layer(job, file);
  check_experts(job, file);
  if (job.adapters) check_adapters(job, file);
  check_frozen_weights(job, file);
  check_lengths(job, file);
  if (job.mtp && job.family != Family::llama)
    refuse(file, "/mtp", "only family llama has MTP modules");
  check_totals(job, file);
  check_optimizer(job, file);
  check_masked(job, file);
  if (!(job.dropout >= 0 && job.dropout < 1)) {
    refuse(file, "/dropout",
           fmt::format("found {}; a number from 0 to below 1 is required", job.dropout));
  }
  const auto check_match = [&](const std::string& match, const std::string& pointer) {
    const auto known = unmatched_group(build_forward(job, 1), match);
    if (known)
      refuse(file, pointer.c_str(),
             fmt::format("found \"{}\"; known: {}", printable(match), *known));
  };
  for (std::size_t i = 0; i < job.optimizer.groups.size(); ++i) {
    check_match(job.optimizer.groups[i].match, fmt::format("/optimizer/groups/{}/match", i));
  }
  for (std::size_t i = 0; i < job.fp32_parameters.size(); ++i) {
    check_match(job.fp32_parameters[i], fmt::format("/fp32_parameters/{}", i));
  }
  for (std::size_t i = 0; i < job.frozen.size(); ++i) {
    check_match(job.frozen[i], fmt::format("/frozen/{}", i));
  }
  for (std::size_t i = 0; job.adapters && i < job.adapters->trained.size(); ++i) {
    check_match(job.adapters->trained[i], fmt::format("/adapters/trained/{}", i));
  }
  if (has_frozen(job)) check_frozen(job, file);
}

}  // namespace plimsoll
