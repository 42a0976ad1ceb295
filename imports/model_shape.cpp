// The sizes and choices of a model are read from a config.json here.
#include "imports/model_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "imports/expert_shape.h"
#include "models/job/job_words.h"

namespace plimsoll {
namespace {

/// Whether the file switches something on, where the architecture has a key for it.
std::optional<bool> switched(ConfigFields& fields, const Architecture& known,
                             std::string_view what) {
  const auto found = known.switches.find(what);
  if (found == known.switches.end()) return std::nullopt;
  return fields.boolean(found->second);
}

void read_heads(ConfigFields& fields, const Architecture& known, Job& job) {
  job.heads = fields.size(known.key("heads"));
  job.kv_heads = job.heads;
  const std::string& grouped = known.key("kv_heads");
  if (fields.has(grouped)) job.kv_heads = fields.size(grouped);
  // Falcon's first architecture states as many heads of keys as of queries, and has one.
  const bool newer = switched(fields, known, "own_norm").value_or(false);
  if (fields.boolean("multi_query") && !newer) job.kv_heads = 1;
  for (const std::string& key : {known.key("head_size"), std::string("kv_channels")}) {
    if (!fields.has(key)) continue;
    const std::int64_t width = fields.size(key);
    if (width * job.heads == job.hidden) continue;
    if (job.family != Family::llama) {
      fields.fail(
          key, fmt::format("heads of a {} job are hidden / heads = {} / {} wide",
                           kFamilies[static_cast<std::size_t>(job.family)], job.hidden, job.heads));
    }
    job.head_size = width;
  }
}

/// The library's names of GELU and of its approximations begin so; gelu_10 also clips.
bool is_gelu(std::string_view word) { return word.starts_with("gelu") && word != "gelu_10"; }

/// The activations of llama jobs and the one of the others (Activation in models/job/job.h).
void read_activation(ConfigFields& fields, const Architecture& known, Job& job) {
  const std::string& key = known.key("activation");
  const std::string word = fields.text(key);
  if (known.family != Family::llama) {
    if (!is_gelu(word)) fields.fail(key, "gpt and bert jobs have GELU");
    return;
  }
  const bool silu = word == "silu" || word == "swish";
  if (known.gated && silu) {
    job.activation = Activation::swiglu;
  } else if (is_gelu(word)) {
    job.activation = known.gated ? Activation::geglu : Activation::gelu;
  } else if (!known.gated && word == "relu2") {
    job.activation = Activation::squared_relu;
  } else {
    fields.fail(key, fmt::format("a job with rotary embeddings has GELU, with a gate or without "
                                 "one, SwiGLU (\"silu\" with a gate) or squared ReLU (\"relu2\" "
                                 "without one); this model has {} gate",
                                 known.gated ? "a" : "no"));
  }
}

/// Biases, norms and the MLP's input: what the architecture always has, and what keys switch on.
void read_layer(ConfigFields& fields, const Architecture& known, Job& job) {
  job.norm = known.always.norm;
  job.norm_place = known.always.norm_place;
  job.mlp_input = known.always.mlp_input;
  const auto read = [&](std::string_view what, bool always) {
    return switched(fields, known, what).value_or(always);
  };
  job.qkv_bias = read("qkv_bias", known.always.qkv_bias);
  job.out_bias = read("out_bias", known.always.out_bias);
  job.mlp_bias = read("mlp_bias", known.always.mlp_bias);
  job.qk_norm = read("qk_norm", known.always.qk_norm);
  if (!read("parallel_mlp", false)) return;
  bool own_norm = read("own_norm", !known.switches.contains("own_norm"));
  const std::string& norms = known.key("parallel_norms");
  if (!norms.empty() && fields.has(norms)) {
    const std::int64_t count = fields.size(norms);
    if (count > 2) fields.fail(norms, "attention and MLP of a job have one norm or two");
    own_norm = count == 2;
  }
  job.mlp_input = own_norm ? MlpInput::own_norm : MlpInput::shared_norm;
}

void note_angles(ConfigFields& fields, const std::string& key, Imported& imported) {
  const Json& value = fields.raw(key);
  std::string type = text_at(value, "rope_type");
  if (type.empty()) type = text_at(value, "type");
  if (type == "default" || (type.empty() && !value.contains("factor"))) return;
  imported.notes.push_back(
      fmt::format("{} {}: it changes the angles of rotary embeddings, and no cost", key,
                  type.empty() ? printable(value.dump()) : printable(type)));
}

/// A Windowed says how many of the layers have a window, whatever its width is.
enum class Windowed : std::uint8_t { none, some, all };

Windowed windowed_of_types(ConfigFields& fields) {
  const Json& types = fields.raw("layer_types");
  if (!types.is_array()) fields.fail("layer_types", "a list is required");
  std::size_t full = 0;
  for (const Json& type : types) {
    const bool known =
        type == "full_attention" || type == "sliding_attention" || type == "chunked_attention";
    if (!known) fields.fail("layer_types", "every layer of a job has attention");
    full += type == "full_attention";
  }
  return full == types.size() ? Windowed::none : full == 0 ? Windowed::all : Windowed::some;
}

Windowed windowed(ConfigFields& fields, const Architecture& known, std::int64_t layers) {
  Windowed found = known.key("window").empty() ? Windowed::some : Windowed::all;
  if (fields.has("layer_types")) found = windowed_of_types(fields);
  if (fields.has("use_sliding_window")) {
    if (!fields.boolean("use_sliding_window")) found = Windowed::none;
    // The layers from this one on have the window.
    if (fields.has("max_window_layers") &&
        fields.number("max_window_layers", 0, 1e9) >= static_cast<double>(layers))
      found = Windowed::none;
  }
  for (const char* key : {"max_window_layers", "sliding_window", "attention_chunk_size"})
    fields.mark_read(key);
  return found;
}

}  // namespace

Architecture with_aliases(ConfigFields& fields, const Architecture& model) {
  Architecture known = model;
  for (const auto& [size, alias] : model.aliases) {
    std::string& key = known.keys.find(size)->second;
    const Json& stated = fields.stated();
    if (!stated.contains(alias)) continue;
    if (stated.contains(key) && stated.at(key) != stated.at(alias)) {
      fields.fail(alias,
                  fmt::format("{} is the same and says {}", key, printable(stated.at(key).dump())));
    }
    fields.mark_read(key);
    key = alias;
  }
  return known;
}

void read_shape(ConfigFields& fields, const Architecture& known, Job& job) {
  job.family = known.family;
  job.layers = fields.size(known.key("layers"));
  job.hidden = fields.size(known.key("hidden"));
  read_heads(fields, known, job);
  const std::string& ffn = known.key("ffn_hidden");
  job.ffn_hidden = fields.has(ffn) ? fields.size(ffn) : 4 * job.hidden;
  job.vocab = fields.size(known.key("vocab"));
  job.tied_embeddings = fields.boolean(known.key("tied_embeddings"));
  read_activation(fields, known, job);
  if (job.family == Family::llama) read_layer(fields, known, job);
  if (known.experts) read_experts(fields, *known.experts, job);
  if (job.family == Family::bert) {
    const std::string& types = known.key("token_types");
    job.token_types = fields.has(types) ? fields.size(types) : 0;
    job.pooler = true;
  }
}

void read_dropout(ConfigFields& fields, const Architecture& known, const ImportGiven& given,
                  Job& job) {
  const std::string* keys[] = {&known.attention_dropout, &known.embedding_dropout,
                               &known.residual_dropout};
  for (const std::string* key : keys) {
    const double value = fields.dropout(*key);
    if (given.dropout) continue;
    for (const std::string* other : keys) {
      if (value > 0 && fields.dropout(*other) != value) {
        fields.fail(*key, fmt::format("a job drops out embeddings, attention and residual branches "
                                      "alike, and here they differ{}; --dropout states one for all",
                                      other->empty() ? "" : " (" + *other + ")"));
      }
    }
    job.dropout = std::max(job.dropout, value);
  }
  if (given.dropout) job.dropout = *given.dropout;
}

void read_rotary(ConfigFields& fields, const Architecture& known, Imported& imported) {
  const std::string &base_key = known.key("rotary_base"), &part_key = known.key("rotary_fraction");
  double base = fields.has(base_key) ? fields.number(base_key, 1, 1e12) : 10000;
  double part = fields.has(part_key) ? fields.number(part_key, 0, 1) : 1;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!fields.has(key)) continue;
    const Json& value = fields.raw(key);
    if (!value.is_object()) fields.fail(key, "an object is required");
    JsonObject rope(value, fields.file(), json_pointer(fields.pointer(), key));
    for (const auto& [name, member] : value.items()) {
      if (member.is_object()) rope.fail(name, "all layers of a job have one rotary_base");
    }
    if (rope.has("rope_theta")) base = rope.number("rope_theta", 1, 1e12);
    if (rope.has("partial_rotary_factor")) part = rope.number("partial_rotary_factor", 0, 1);
    note_angles(fields, key, imported);
  }
  imported.job->rotary_base = base;
  imported.job->rotary_fraction = part;
}

void read_windows(ConfigFields& fields, const Architecture& known, Job& job) {
  const Windowed layers = windowed(fields, known, job.layers);
  if (layers == Windowed::none) return;
  for (const char* key : {"sliding_window", "attention_chunk_size"}) {
    if (!fields.has(key)) continue;
    const std::int64_t window = fields.size(key);
    if (layers == Windowed::all && key == known.key("window")) job.window = window;
    if (window >= job.sequence || job.window > 0) continue;
    fields.fail(key, fmt::format("a window of a job is of all layers, and this model has layers "
                                 "that see all {} tokens; --sequence {} or less fits in the window",
                                 job.sequence, window));
  }
}

}  // namespace plimsoll
