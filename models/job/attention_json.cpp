// Attention of llama jobs: keys, canonical form, and what excludes each other.
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "models/job/job_limits.h"
#include "models/job/job_parts_json.h"

namespace plimsoll {

namespace {

[[noreturn]] void refuse_key(const std::string& file, const char* pointer,
                             const std::string& message) {
  throw InputError(file, pointer, message);
}

Latent latent_from(JsonObject object) {
  Latent latent;
  if (object.has("q_rank")) latent.q_rank = object.integer("q_rank", 1, kMostHidden);
  latent.kv_rank = object.integer("kv_rank", 1, kMostHidden);
  latent.nope = object.integer("nope", 1, kMostHeadSize);
  latent.rope = object.integer("rope", 2, kMostHeadSize);
  latent.value = object.integer("value", 1, kMostHeadSize);
  object.finish();
  return latent;
}

Json latent_json(const Latent& latent) {
  Json json = Json::object();
  if (latent.q_rank > 0) json["q_rank"] = latent.q_rank;
  json["kv_rank"] = latent.kv_rank;
  json["nope"] = latent.nope;
  json["rope"] = latent.rope;
  json["value"] = latent.value;
  return json;
}

/// Latent attention has sizes of its own, as many keys as queries, and neither biases nor norms of
/// heads.
void check_latent(const Job& job, const std::string& file) {
  const Latent& latent = *job.latent;
  const std::pair<const char*, std::int64_t> sizes[] = {{"/latent/kv_rank", latent.kv_rank},
                                                        {"/latent/nope", latent.nope},
                                                        {"/latent/rope", latent.rope},
                                                        {"/latent/value", latent.value}};
  for (const auto& [pointer, size] : sizes) {
    if (size < 1)
      refuse_key(file, pointer, fmt::format("found {}; a size from 1 is required", size));
  }
  if (latent.rope % 2 != 0) {
    refuse_key(
        file, "/latent/rope",
        fmt::format("found {}; rotary embeddings turn pairs and need an even width", latent.rope));
  }
  const auto without = [&](bool stated, const char* pointer, const char* what) {
    if (stated) refuse_key(file, pointer, fmt::format("a job with latent attention has {}", what));
  };
  without(job.kv_heads != job.heads, "/kv_heads", "a key and a value of every head");
  without(job.head_size != 0, "/head_size", "the sizes of heads in latent");
  without(job.qkv_bias, "/qkv_bias", "no biases in attention");
  without(job.out_bias, "/out_bias", "no biases in attention");
  without(job.qk_norm, "/qk_norm", "norms of its latents, and none of heads");
  without(job.qk_l2_norm, "/qk_l2_norm", "norms of its latents, and none of heads");
  without(job.alibi, "/alibi", "columns that are turned");
  without(job.rotary_fraction != 1, "/rotary_fraction", "the columns that are turned in latent");
}

/// Rotary embeddings turn pairs of a head's columns.
void check_rotary(const Job& job, const std::string& file) {
  const std::int64_t head = head_width(job);
  if (head % 2 != 0) {
    refuse_key(file, job.head_size > 0 ? "/head_size" : "/heads",
               fmt::format("heads are {} wide; rotary embeddings turn pairs and need an even width",
                           head));
  }
  const double turned = double(head) * job.rotary_fraction;
  const bool whole = std::abs(turned - std::round(turned)) < 1e-6;
  if (!whole || turned < 1.5 || turned > double(head) || std::llround(turned) % 2 != 0) {
    refuse_key(
        file, "/rotary_fraction",
        fmt::format("found {}; it is {:g} of the {} columns of a head, and an even number of "
                    "them from 2 on is required",
                    job.rotary_fraction, turned, head));
  }
}

/// Nothing is turned.
void check_alibi(const Job& job, const std::string& file) {
  if (job.rotary_fraction != 1)
    refuse_key(file, "/rotary_fraction", "a job with alibi has no rotary embeddings");
  if (job.window_rotary_base > 0)
    refuse_key(file, "/window_rotary_base", "a job with alibi has no rotary embeddings");
  if (job.rotary_base != Job().rotary_base)
    refuse_key(file, "/rotary_base", "a job with alibi has no rotary embeddings");
}

void check_windows(const Job& job, const std::string& file) {
  if (!job.window_pattern.empty() && job.window == 0)
    refuse_key(file, "/window_pattern", "it states which layers have a window, and there is none");
  if (job.window_chunks && job.window == 0)
    refuse_key(file, "/window_chunks", "it states what the window is, and there is none");
  if (job.window_rotary_base > 0 && job.window == 0)
    refuse_key(file, "/window_rotary_base",
               "it is of layers that have a window, and there is none");
}

}  // namespace

std::vector<bool> layer_pattern_from(JsonObject& object, const char* key) {
  std::vector<bool> pattern;
  for (const std::int64_t chosen : object.integers(key, 0, 1)) pattern.push_back(chosen == 1);
  if (pattern.empty()) object.fail(key, "at least one layer is required");
  return pattern;
}

Json layer_pattern_json(const std::vector<bool>& pattern) {
  Json json = Json::array();
  for (const bool chosen : pattern) json.push_back(chosen ? 1 : 0);
  return json;
}

void read_attention(JsonObject& object, Job& job) {
  if (object.has("head_size")) {
    job.head_size = object.integer("head_size", 1, kMostHeadSize);
    // The width that heads have anyway is not stated again.
    if (job.head_size * job.heads == job.hidden) job.head_size = 0;
  }
  for (const auto& [key, value] :
       {std::pair("qkv_bias", &job.qkv_bias), std::pair("out_bias", &job.out_bias),
        std::pair("mlp_bias", &job.mlp_bias), std::pair("qk_norm", &job.qk_norm),
        std::pair("qk_norm_across_heads", &job.qk_norm_across_heads),
        std::pair("qk_l2_norm", &job.qk_l2_norm), std::pair("sinks", &job.sinks),
        std::pair("alibi", &job.alibi), std::pair("head_bias", &job.head_bias),
        std::pair("window_chunks", &job.window_chunks)}) {
    if (object.has(key)) *value = object.boolean(key);
  }
  for (const auto& [key, value] :
       {std::pair("score_cap", &job.score_cap), std::pair("logit_cap", &job.logit_cap)}) {
    if (object.has(key)) *value = object.number(key, kLeastCap, kMostCap);
  }
  if (object.has("latent")) job.latent = latent_from(object.object("latent"));
  if (object.has("window")) job.window = object.integer("window", 1, kMostSequence);
  if (object.has("window_pattern")) {
    job.window_pattern = layer_pattern_from(object, "window_pattern");
  }
  if (object.has("window_rotary_base"))
    job.window_rotary_base = object.number("window_rotary_base", 1, kMostBase);
  if (object.has("rotary_base")) job.rotary_base = object.number("rotary_base", 1, kMostBase);
  if (object.has("rotary_fraction")) job.rotary_fraction = object.number("rotary_fraction", 0, 1);
}

/// Files of before a key existed keep their bytes: what has its default is not written.
void write_attention(const Job& job, Json& value) {
  if (job.head_size > 0) value["head_size"] = job.head_size;
  value["qkv_bias"] = job.qkv_bias;
  if (job.out_bias) value["out_bias"] = true;
  if (job.mlp_bias) value["mlp_bias"] = true;
  if (job.qk_norm) value["qk_norm"] = true;
  if (job.qk_norm_across_heads) value["qk_norm_across_heads"] = true;
  if (job.qk_l2_norm) value["qk_l2_norm"] = true;
  if (job.sinks) value["sinks"] = true;
  if (job.alibi) value["alibi"] = true;
  if (job.head_bias) value["head_bias"] = true;
  if (job.score_cap > 0) value["score_cap"] = job.score_cap;
  if (job.logit_cap > 0) value["logit_cap"] = job.logit_cap;
  if (job.latent) value["latent"] = latent_json(*job.latent);
  if (job.window > 0) value["window"] = job.window;
  if (job.window_chunks) value["window_chunks"] = true;
  if (!job.window_pattern.empty()) value["window_pattern"] = layer_pattern_json(job.window_pattern);
  if (job.window_rotary_base > 0) value["window_rotary_base"] = job.window_rotary_base;
  if (!job.alibi) value["rotary_base"] = job.rotary_base;
  if (job.rotary_fraction != 1) value["rotary_fraction"] = job.rotary_fraction;
}

void check_llama_attention(const Job& job, const std::string& file) {
  if (job.latent) {
    check_latent(job, file);
  } else if (job.alibi) {
    check_alibi(job, file);
  } else {
    check_rotary(job, file);
  }
  check_windows(job, file);
  if (job.qk_norm_across_heads && !job.qk_norm)
    refuse_key(file, "/qk_norm_across_heads", "it is how qk_norm norms, which is not on");
  if (job.qk_l2_norm && job.qk_norm)
    refuse_key(file, "/qk_l2_norm", "it is a norm without a weight, and qk_norm has one");
}

}  // namespace plimsoll
