// The sizes and choices of a model are read from a config.json here.
#include "imports/model_shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace plimsoll {
namespace {

void read_heads(ConfigFields& fields, const Architecture& known, Job& job) {
  job.heads = fields.size(known.key("heads"));
  job.kv_heads = job.heads;
  if (fields.boolean("multi_query")) job.kv_heads = 1;
  const std::string& grouped = known.key("kv_heads");
  if (fields.has(grouped)) job.kv_heads = fields.size(grouped);
  for (const char* key : {"head_dim", "kv_channels"}) {
    if (fields.has(key) && fields.size(key) * job.heads != job.hidden) {
      fields.fail(key, fmt::format("heads of a job are hidden / heads = {} / {} wide", job.hidden,
                                   job.heads));
    }
  }
}

/// The two activations of llama jobs and the one of the others (Activation in models/job/job.h).
void read_activation(ConfigFields& fields, const Architecture& known, Job& job) {
  const std::string& key = known.key("activation");
  const std::string word = fields.text(key);
  if (known.family != Family::llama) {
    // The library's names of GELU and of its approximations begin so; gelu_10 also clips.
    if (!word.starts_with("gelu") || word == "gelu_10") {
      fields.fail(key, "gpt and bert jobs have GELU");
    }
    return;
  }
  const bool silu = word == "silu" || word == "swish";
  if (known.gated && silu) {
    job.activation = Activation::swiglu;
  } else if (!known.gated && word == "relu2") {
    job.activation = Activation::squared_relu;
  } else {
    fields.fail(key, fmt::format("a job with rotary embeddings has SwiGLU (\"silu\" with a gate) "
                                 "or squared ReLU (\"relu2\" without one); this model has {} gate",
                                 known.gated ? "a" : "no"));
  }
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

void note_partial(double factor, Imported& imported) {
  if (factor == 1) return;
  imported.notes.push_back(
      fmt::format("partial_rotary_factor {:g}: a job rotates whole heads; parameters are the "
                  "same, the rotation costs slightly more",
                  factor));
}

/// Returns whether no layer has a window, whatever its width is.
bool all_full(ConfigFields& fields, std::int64_t layers) {
  bool full = false;
  if (fields.has("layer_types")) {
    const Json& types = fields.raw("layer_types");
    if (!types.is_array()) fields.fail("layer_types", "a list is required");
    full = true;
    for (const Json& type : types) {
      const bool known =
          type == "full_attention" || type == "sliding_attention" || type == "chunked_attention";
      if (!known) fields.fail("layer_types", "every layer of a job has attention");
      full = full && type == "full_attention";
    }
  }
  if (fields.has("use_sliding_window")) {
    full = full || !fields.boolean("use_sliding_window");
    // The layers from this one on have the window.
    full = full || (fields.has("max_window_layers") &&
                    fields.number("max_window_layers", 0, 1e9) >= static_cast<double>(layers));
  }
  for (const char* key : {"max_window_layers", "sliding_window", "attention_chunk_size"})
    fields.mark_read(key);
  return full;
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
  if (job.family == Family::llama) {
    job.norm = known.norm;
    job.qkv_bias =
        known.qkv_bias || (!known.qkv_bias_key.empty() && fields.boolean(known.qkv_bias_key));
  }
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

void read_rotary(ConfigFields& fields, Imported& imported) {
  double base = fields.has("rope_theta") ? fields.number("rope_theta", 1, 1e12) : 10000;
  double part =
      fields.has("partial_rotary_factor") ? fields.number("partial_rotary_factor", 0, 1) : 1;
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
  note_partial(part, imported);
}

void check_windows(ConfigFields& fields, const Job& job) {
  if (all_full(fields, job.layers)) return;
  for (const char* key : {"sliding_window", "attention_chunk_size"}) {
    if (!fields.has(key)) continue;
    const std::int64_t window = fields.size(key);
    if (window >= job.sequence) continue;
    fields.fail(key, fmt::format("attention of a job is over the whole sequence, here of {} "
                                 "tokens; --sequence {} or less fits in the window",
                                 job.sequence, window));
  }
}

}  // namespace plimsoll
