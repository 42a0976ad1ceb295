// Job files: reading under limits, writing in canonical order, and the rules inside a job.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "models/job/job.h"
#include "models/job/job_limits.h"
#include "models/job/job_parts_json.h"
#include "models/job/job_words.h"
#include "models/kinds/file_kind.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

[[noreturn]] void refuse(const std::string& file, const char* pointer, const std::string& message) {
  throw InputError(file, pointer, message);
}

struct SizeRule {
  const char* pointer;
  std::int64_t value, least, most;
};

void check_rules(std::span<const SizeRule> rules, const std::string& file) {
  for (const SizeRule& rule : rules) {
    if (rule.value < rule.least || rule.value > rule.most) {
      refuse(file, rule.pointer,
             fmt::format("found {}; an integer from {} to {} is required", rule.value, rule.least,
                         rule.most));
    }
  }
}

void check_sizes(const Job& job, const std::string& file) {
  const SizeRule rules[] = {
      {"/layers", job.layers, 1, kMostLayers},
      {"/hidden", job.hidden, 1, kMostHidden},
      {"/heads", job.heads, 1, kMostHeads},
      {"/kv_heads", job.kv_heads, 1, kMostHeads},
      {"/head_size", job.head_size, 0, kMostHeadSize},
      {"/window", job.window, 0, kMostSequence},
      {"/ffn_hidden", job.ffn_hidden, 1, kMostFfn},
      {"/vocab", job.vocab, 2, kMostVocab},
      {"/sequence", job.sequence, 1, kMostSequence},
      {"/global_batch", job.global_batch, 1, kMostBatch},
      {"/seed", job.seed, 0, kMostSeed},
  };
  check_rules(rules, file);
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
}

/// "/branch" of an ERNIE job, absent elsewhere.
void check_branch(const Job& job, const std::string& file) {
  if (job.branch.has_value() != (job.family == Family::ernie)) {
    refuse(file, job.branch ? "/branch" : "", "family ernie has a branch, no other family has one");
  }
  if (!job.branch) return;
  const Branch& branch = *job.branch;
  const SizeRule rules[] = {
      {"/branch/layers", branch.layers, 1, kMostLayers},
      {"/branch/hidden", branch.hidden, 1, kMostHidden},
      {"/branch/heads", branch.heads, 1, kMostHeads},
      {"/branch/ffn_hidden", branch.ffn_hidden, 1, kMostFfn},
  };
  check_rules(rules, file);
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
                            layers * (4 * hidden * heads + 3 * hidden * ffn + of_latents) +
                            layers * 3 * hidden * static_cast<double>(experts.count) * expert_ffn +
                            layers * hidden * (3 * whole_ffn + 2 * narrow_hidden) +
                            branch_layers * (4 * narrow * narrow + 2 * narrow * branch_ffn) +
                            hidden * (2 * vocab + sequence + narrow) + narrow * vocab;
  if (parameters > kMostParameters) {
    refuse(file, "",
           fmt::format("a job of {:.3g} parameters; at most 2^50 are supported", parameters));
  }
  const double per_layer = static_cast<double>(job.heads) * sequence + 10 * hidden + 6 * heads +
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

template <class Enumeration, std::size_t kWords>
void read_choice(JsonObject& object, const char* key,
                 const std::array<std::string_view, kWords>& words, Enumeration& value) {
  if (object.has(key)) value = static_cast<Enumeration>(object.choice(key, words));
}

void read_llama(JsonObject& object, Job& job) {
  read_attention(object, job);
  read_choice(object, "activation", kActivations, job.activation);
  read_choice(object, "norm", kNorms, job.norm);
  if (object.has("norm_bias")) job.norm_bias = object.boolean("norm_bias");
  if (object.has("embedding_norm")) job.embedding_norm = object.boolean("embedding_norm");
  read_choice(object, "norm_place", kNormPlaces, job.norm_place);
  read_choice(object, "mlp_input", kMlpInputs, job.mlp_input);
  if (object.has("experts")) job.experts = experts_from(object.object("experts"), job.ffn_hidden);
  if (object.has("mtp")) job.mtp = mtp_from(object.object("mtp"));
}

/// The keys that only some families have.
void read_family(JsonObject& object, Job& job) {
  if (job.family == Family::llama) read_llama(object, job);
  if (job.family != Family::bert && job.family != Family::ernie) return;
  if (object.has("token_types")) {
    job.token_types = object.integer("token_types", 0, kMostSequence);
  }
  if (object.has("mask_probability")) {
    job.mask_probability = object.number("mask_probability", 0, 1);
  }
  if (job.family == Family::bert) {
    if (object.has("pooler")) job.pooler = object.boolean("pooler");
    return;
  }
  JsonObject branch = object.object("branch");
  Branch& sizes = job.branch.emplace();
  sizes.layers = branch.integer("layers", 1, kMostLayers);
  sizes.hidden = branch.integer("hidden", 1, kMostHidden);
  sizes.heads = branch.integer("heads", 1, kMostHeads);
  sizes.ffn_hidden =
      branch.has("ffn_hidden") ? branch.integer("ffn_hidden", 1, kMostFfn) : 4 * sizes.hidden;
  branch.finish();
}

template <class Enumeration, std::size_t kWords>
void write_choice(Json& value, const char* key, const std::array<std::string_view, kWords>& words,
                  Enumeration choice) {
  if (choice != Enumeration{}) value[key] = words[static_cast<std::size_t>(choice)];
}

void write_llama(const Job& job, Json& value) {
  write_attention(job, value);
  write_choice(value, "activation", kActivations, job.activation);
  write_choice(value, "norm", kNorms, job.norm);
  if (!job.norm_bias) value["norm_bias"] = false;
  if (job.embedding_norm) value["embedding_norm"] = true;
  write_choice(value, "norm_place", kNormPlaces, job.norm_place);
  write_choice(value, "mlp_input", kMlpInputs, job.mlp_input);
  if (job.experts) value["experts"] = experts_json(*job.experts);
  if (job.mtp) value["mtp"] = mtp_json(*job.mtp);
}

void write_family(const Job& job, Json& value) {
  if (job.family == Family::llama) write_llama(job, value);
  if (job.family != Family::bert && job.family != Family::ernie) return;
  value["token_types"] = job.token_types;
  value["mask_probability"] = job.mask_probability;
  if (job.family == Family::bert) value["pooler"] = job.pooler;
  if (!job.branch) return;
  const Branch& branch = *job.branch;
  value["branch"] = {{"layers", branch.layers},
                     {"hidden", branch.hidden},
                     {"heads", branch.heads},
                     {"ffn_hidden", branch.ffn_hidden}};
}

std::string_view precision_text(DType precision) {
  for (std::size_t i = 0; i < kPrecisions.size(); ++i) {
    if (kPrecisionTypes[i] == precision) return kPrecisions[i];
  }
  INVARIANT(false, "a job computes in a floating-point type");
  return {};
}

}  // namespace

void check_job(const Job& job, const std::string& file) {
  if (job.name.empty()) refuse(file, "/name", "a job needs a name");
  check_sizes(job, file);
  check_attention(job, file);
  check_layer(job, file);
  check_experts(job, file);
  check_mtp(job, file);
  check_totals(job, file);
  check_optimizer(job, file);
  check_branch(job, file);
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
}

Job parse_job(std::string_view text, const std::string& file) {
  const Json value = parse_file_of(FileKind::job, text, file);
  JsonObject object(value, file);
  Job job;
  job.name = object.text("name");
  job.family = static_cast<Family>(object.choice("family", kFamilies));
  job.layers = object.integer("layers", 1, kMostLayers);
  job.hidden = object.integer("hidden", 1, kMostHidden);
  job.heads = object.integer("heads", 1, kMostHeads);
  job.kv_heads = object.has("kv_heads") ? object.integer("kv_heads", 1, kMostHeads) : job.heads;
  job.ffn_hidden =
      object.has("ffn_hidden") ? object.integer("ffn_hidden", 1, kMostFfn) : 4 * job.hidden;
  job.vocab = object.integer("vocab", 2, kMostVocab);
  job.sequence = object.integer("sequence", 1, kMostSequence);
  job.tied_embeddings = object.boolean("tied_embeddings");
  read_family(object, job);
  job.global_batch = object.integer("global_batch", 1, kMostBatch);
  job.precision = kPrecisionTypes[object.choice("precision", kPrecisions)];
  if (object.has("fp32_parameters")) job.fp32_parameters = object.texts("fp32_parameters");
  if (object.has("optimizer")) job.optimizer = optimizer_from(object.object("optimizer"));
  if (object.has("loss_scale")) {
    job.loss_scale = loss_scale_from(object.object("loss_scale"));
  } else if (job.precision == DType::f16) {
    job.loss_scale = LossScale{};
  }
  if (object.has("clip_norm")) job.clip_norm = object.number("clip_norm", 0, 1e9);
  if (object.has("dropout")) job.dropout = object.number("dropout", 0, 1);
  if (object.has("seed")) job.seed = object.integer("seed", 0, kMostSeed);
  object.finish();
  check_job(job, file);
  return job;
}

Job read_job(const std::filesystem::path& path) {
  return parse_job(read_file_or_preset(path.string(), job_presets()), path.string());
}

std::string job_text(const Job& job) {
  Json value = {{"name", job.name},
                {"family", kFamilies[static_cast<std::size_t>(job.family)]},
                {"layers", job.layers},
                {"hidden", job.hidden},
                {"heads", job.heads},
                {"kv_heads", job.kv_heads},
                {"ffn_hidden", job.ffn_hidden},
                {"vocab", job.vocab},
                {"sequence", job.sequence},
                {"tied_embeddings", job.tied_embeddings}};
  write_family(job, value);
  value["global_batch"] = job.global_batch;
  value["precision"] = precision_text(job.precision);
  if (!job.fp32_parameters.empty()) value["fp32_parameters"] = job.fp32_parameters;
  value["optimizer"] = optimizer_json(job.optimizer);
  value["clip_norm"] = job.clip_norm;
  value["dropout"] = job.dropout;
  value["seed"] = job.seed;
  if (job.loss_scale) value["loss_scale"] = loss_scale_json(*job.loss_scale);
  return json_text(value);
}

}  // namespace plimsoll
