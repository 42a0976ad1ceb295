// The sizes and choices of a model are read from a config.json here.
#include "interop/imports/model_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "models/job/job_words.h"
#include "models/job/layer_forms.h"

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
  if (const std::string& rank = known.key("latent_kv_rank"); !rank.empty()) {
    Latent& latent = job.latent.emplace();
    const std::string& of_queries = known.key("latent_q_rank");
    if (fields.has(of_queries)) latent.q_rank = fields.size(of_queries);
    latent.kv_rank = fields.size(rank);
    latent.nope = fields.size(known.key("latent_nope"));
    latent.rope = fields.size(known.key("latent_rope"));
    const std::string& of_values = known.key("latent_value");
    latent.value = fields.has(of_values) ? fields.size(of_values) : latent.nope;
    return;
  }
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
  job.norm_bias = known.always.norm_bias;
  job.embedding_norm = known.always.embedding_norm;
  job.sinks = known.always.sinks;
  job.mlp_input = known.always.mlp_input;
  const auto read = [&](std::string_view what, bool always) {
    return switched(fields, known, what).value_or(always);
  };
  job.qkv_bias = read("qkv_bias", known.always.qkv_bias);
  job.out_bias = read("out_bias", known.always.out_bias);
  job.mlp_bias = read("mlp_bias", known.always.mlp_bias);
  job.qk_norm = read("qk_norm", known.always.qk_norm);
  job.qk_l2_norm = read("qk_l2_norm", false);
  job.alibi = read("alibi", known.always.alibi);
  job.qk_norm_across_heads = known.always.qk_norm_across_heads;
  job.head_bias = read("head_bias", known.always.head_bias);
  for (const auto& [size, cap] :
       {std::pair("score_cap", &job.score_cap), std::pair("logit_cap", &job.logit_cap)}) {
    const std::string& key = known.key(size);
    if (!key.empty() && fields.has(key)) *cap = fields.number(key, 0, 1e6);
  }
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

constexpr const char* kChunkSize = "attention_chunk_size";

/// Whether the layers with a window see chunks as long.
bool sees_chunks(ConfigFields& fields, const Architecture& known) {
  if (!fields.has("layer_types")) return known.key("window") == kChunkSize;
  const Json& types = fields.raw("layer_types");
  return types.is_array() && std::ranges::find(types, "chunked_attention") != types.end();
}

/// Reads the layers that have a window of a list of types.
std::vector<bool> windowed_of_types(ConfigFields& fields, const Architecture& architecture,
                                    std::int64_t layers) {
  const Json& types = fields.raw("layer_types");
  if (!types.is_array()) fields.fail("layer_types", "a list is required");
  std::vector<bool> windowed;
  for (const Json& type : types) {
    const bool known =
        type == "full_attention" || type == "sliding_attention" || type == "chunked_attention";
    if (!known) fields.fail("layer_types", "every layer of a job has attention");
    windowed.push_back(type != "full_attention");
  }
  if (sees_chunks(fields, architecture) &&
      std::ranges::find(types, "sliding_attention") != types.end())
    fields.fail("layer_types", "layers of a job have windows or chunks, and not both");
  if (std::int64_t(windowed.size()) != layers)
    fields.fail("layer_types", fmt::format("a type for each of the {} layers is required", layers));
  return windowed;
}

/// Reads the layers that have a window of a pattern as "LLLG", of local and global layers. It
/// repeats, and the last layer is global (EXAONE 4).
std::vector<bool> windowed_of_letters(ConfigFields& fields, const std::string& key, std::size_t n) {
  const std::string letters = fields.text(key);
  if (letters.empty() || letters.find_first_not_of("LG") != letters.npos)
    fields.fail(key, "a number of layers, or letters L and G, are required");
  std::vector<bool> windowed(n);
  for (std::size_t i = 0; i + 1 < n; ++i) windowed[i] = letters[i % letters.size()] == 'L';
  return windowed;
}

/// A Windows says which layers have a window, whatever its width is. Nothing: some, and it is not
/// known which.
using Windows = std::optional<std::vector<bool>>;

Windows windowed(ConfigFields& fields, const Architecture& known, std::int64_t layers) {
  const auto n = std::size_t(layers);
  Windows found;
  if (!known.key("window").empty()) found.emplace(n, true);
  const std::string& period = known.key("window_period");
  if (!period.empty() && fields.has(period)) {
    const Json& value = fields.raw(period);
    if (value.is_string()) {
      found = windowed_of_letters(fields, period, n);
    } else {
      const auto length = std::size_t(fields.size(period));
      for (std::size_t i = length - 1; i < n; i += length) (*found)[i] = false;
    }
  }
  if (fields.has("layer_types")) found = windowed_of_types(fields, known, layers);
  if (fields.has("use_sliding_window")) {
    const bool uses = fields.boolean("use_sliding_window");
    if (!uses) found.emplace(n, false);
    // The layers from this one on have the window.
    if (uses && fields.has("max_window_layers")) {
      const double first = fields.number("max_window_layers", 0, 1e9);
      found.emplace(n);
      for (std::size_t i = 0; i < n; ++i) (*found)[i] = double(i) >= first;
    }
  }
  for (const char* key : {"max_window_layers", "sliding_window", kChunkSize}) fields.mark_read(key);
  return found;
}

/// Reads the base of rotary embeddings, of layers with and without a window where they differ.
void read_bases(ConfigFields& fields, JsonObject& rope, const Json& value, Job& job) {
  if (rope.has("rope_theta")) job.rotary_base = rope.number("rope_theta", 1, 1e12);
  if (rope.has("partial_rotary_factor"))
    job.rotary_fraction = rope.number("partial_rotary_factor", 0, 1);
  for (const auto& [name, member] : value.items()) {
    if (!member.is_object()) continue;
    const bool windowed = name == "sliding_attention";
    if (!windowed && name != "full_attention")
      rope.fail(name, "layers with a window and others may differ, and no others");
    JsonObject own(member, fields.file(), json_pointer(rope.pointer(), name));
    if (own.has("rope_theta")) {
      (windowed ? job.window_rotary_base : job.rotary_base) = own.number("rope_theta", 1, 1e12);
    }
  }
}

/// An architecture's file may name a key for these: the keys of `experts` in a job, and the number
/// of shared experts, each as wide as the others.
/// Further ones say which layers have experts: every n-th one, those up to a last one, those of a
/// list, those that are not in a list, or those that a list of all layers calls "sparse".
constexpr std::string_view kKnown[] = {"count",
                                       "chosen",
                                       "ffn_hidden",
                                       "shared_experts",
                                       "shared_ffn_hidden",
                                       "dense_layers",
                                       "normalized",
                                       "scale",
                                       "groups",
                                       "top_groups",
                                       "every",
                                       "last_layer",
                                       "in_layers",
                                       "not_in_layers",
                                       "balance_loss",
                                       "dense_ffn_hidden",
                                       "types"};

/// Whether each layer has experts.
std::vector<bool> layers_with_experts(ConfigFields& fields, const ExpertKeys& known,
                                      std::int64_t layers) {
  std::vector<bool> found(std::size_t(layers), true);
  const auto key_of = [&](const char* what) {
    const auto key = known.keys.find(what);
    return key != known.keys.end() && fields.has(key->second) ? key->second : std::string();
  };
  if (const std::string every = key_of("every"); !every.empty()) {
    const auto period = std::size_t(fields.size(every));
    for (std::size_t i = 0; i < found.size(); ++i) found[i] = (i + 1) % period == 0;
  }
  // -1 stands for the last layer of the model.
  if (const std::string key = key_of("last_layer"); !key.empty()) {
    const double last = fields.number(key, -1, double(layers - 1));
    for (std::int64_t i = layers; last >= 0 && --i > std::int64_t(last);)
      found[std::size_t(i)] = false;
  }
  if (const std::string key = key_of("types"); !key.empty()) {
    const Json& types = fields.raw(key);
    if (!types.is_array() || types.size() != found.size())
      fields.fail(key, fmt::format("a type for each of the {} layers is required", layers));
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (types[i] != "sparse" && types[i] != "dense")
        fields.fail(key, "\"sparse\" and \"dense\" are allowed");
      found[i] = types[i] == "sparse";
    }
  }
  for (const bool listed : {true, false}) {
    const std::string key = key_of(listed ? "in_layers" : "not_in_layers");
    if (key.empty() || fields.raw(key).empty()) continue;
    const Json& list = fields.raw(key);
    if (!list.is_array()) fields.fail(key, "a list of layers is required");
    if (listed) found.assign(found.size(), false);
    for (const Json& layer : list) {
      if (!layer.is_number_integer() || layer < 0 || layer >= layers)
        fields.fail(key, fmt::format("layers from 0 to {} are required", layers - 1));
      found[std::size_t(layer)] = listed;
    }
  }
  return found;
}

/// Returns the value of a key, or of a list with the same value for each layer.
std::int64_t size_of_layers(ConfigFields& fields, const std::string& key, std::int64_t least,
                            std::int64_t layers) {
  constexpr std::int64_t kMost = 1 << 30;
  const Json& list = fields.raw(key);
  if (!list.is_array()) {
    return least > 0 ? fields.size(key) : std::int64_t(fields.number(key, 0, double(kMost)));
  }
  const bool alike =
      std::int64_t(list.size()) == layers &&
      std::ranges::all_of(list, [&](const Json& value) { return value == list.front(); });
  if (!alike || !list.front().is_number_integer() || list.front() < least || list.front() > kMost)
    fields.fail(key, fmt::format("one size, or the same one for each of the {} layers", layers));
  return list.front().get<std::int64_t>();
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
  const std::string& depths = known.key("mtp_depths");
  if (!depths.empty() && fields.has(depths) && fields.number(depths, 0, 64) > 0)
    job.mtp.emplace().depths = fields.size(depths);
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
  Job& job = *imported.job;
  if (job.alibi) {
    for (const char* key : {"rope_theta", "rope_scaling", "partial_rotary_factor"})
      fields.mark_read(key);
    return;
  }
  const std::string &base_key = known.key("rotary_base"), &part_key = known.key("rotary_fraction"),
                    &of_windows = known.key("window_rotary_base");
  if (fields.has(base_key)) job.rotary_base = fields.number(base_key, 1, 1e12);
  if (fields.has(part_key)) job.rotary_fraction = fields.number(part_key, 0, 1);
  if (!of_windows.empty() && fields.has(of_windows))
    job.window_rotary_base = fields.number(of_windows, 1, 1e12);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!fields.has(key)) continue;
    const Json& value = fields.raw(key);
    if (!value.is_object()) fields.fail(key, "an object is required");
    JsonObject rope(value, fields.file(), json_pointer(fields.pointer(), key));
    read_bases(fields, rope, value, job);
    note_angles(fields, key, imported);
  }
}

void read_windows(ConfigFields& fields, const Architecture& known, Job& job) {
  const Windows layers = windowed(fields, known, job.layers);
  const double base = std::exchange(job.window_rotary_base, 0);
  if (layers && std::ranges::find(*layers, true) == layers->end()) return;
  for (const std::string& key : {std::string("sliding_window"), std::string(kChunkSize)}) {
    if (!fields.has(key)) continue;
    const std::int64_t window = fields.size(key);
    const bool chunks = sees_chunks(fields, known);
    if (layers && (key == kChunkSize) == chunks) {
      job.window = window;
      job.window_chunks = chunks;
      job.window_pattern = shortest_period(*layers);
      if (job.window_pattern == std::vector{true}) job.window_pattern.clear();
      if (base != job.rotary_base) job.window_rotary_base = base;
    }
    if (window >= job.sequence || job.window > 0) continue;
    fields.fail(key, fmt::format("it is not known which layers of models of this type see all {} "
                                 "tokens; --sequence {} or less fits in the window",
                                 job.sequence, window));
  }
}

ExpertKeys expert_keys_from(JsonObject object) {
  ExpertKeys known;
  JsonObject keys = object.object("keys");
  for (const std::string& what : keys.keys()) {
    if (std::ranges::find(kKnown, what) == std::end(kKnown))
      keys.fail(what, "it is no size of experts");
    known.keys[what] = keys.text(what);
  }
  if (object.has("score"))
    known.always.score = static_cast<RouterScore>(object.choice("score", kRouterScores));
  if (object.has("normalized")) known.always.normalized = object.boolean("normalized");
  for (const auto& [key, value] :
       {std::pair("shared_gate", &known.always.shared_gate), std::pair("bias", &known.always.bias),
        std::pair("router_bias", &known.always.router_bias),
        std::pair("scaled_input", &known.always.scaled_input)}) {
    if (object.has(key)) *value = object.boolean(key);
  }
  if (object.has("group_best")) known.always.group_best = object.integer("group_best", 1, 1 << 16);
  if (object.has("selection_bias"))
    known.always.selection_bias = object.number("selection_bias", 0, 1e6);
  if (object.has("requires")) known.required = object.raw("requires");
  object.finish();
  return known;
}

void read_experts(ConfigFields& fields, const ExpertKeys& known, Job& job) {
  for (const auto& [key, value] : known.required.items()) {
    if (fields.has(key) && fields.raw(key) != value) {
      fields.fail(key, fmt::format("{} is required: so are the experts of models of this type",
                                   value.dump()));
    }
  }
  Experts experts = known.always;
  const auto size = [&](const char* what, std::int64_t& value, std::int64_t least) {
    const auto key = known.keys.find(what);
    if (key == known.keys.end() || !fields.has(key->second)) return;
    value = size_of_layers(fields, key->second, least, job.layers);
  };
  experts.ffn_hidden = job.ffn_hidden;
  size("count", experts.count, 1);
  size("chosen", experts.chosen, 1);
  size("ffn_hidden", experts.ffn_hidden, 1);
  size("shared_ffn_hidden", experts.shared_ffn_hidden, 0);
  size("dense_ffn_hidden", experts.dense_ffn_hidden, 0);
  std::int64_t shared = 0;
  size("shared_experts", shared, 0);
  if (shared > 0) experts.shared_ffn_hidden = shared * experts.ffn_hidden;
  size("dense_layers", experts.dense_layers, 0);
  size("groups", experts.groups, 1);
  size("top_groups", experts.top_groups, 1);
  if (experts.top_groups == experts.groups) experts.groups = experts.top_groups = 1;
  if (experts.groups == 1) experts.group_best = 1;
  if (const auto key = known.keys.find("normalized"); key != known.keys.end())
    experts.normalized = fields.boolean(key->second);
  const auto factor = [&](const char* what, double& value) {
    const auto key = known.keys.find(what);
    if (key != known.keys.end() && fields.has(key->second))
      value = fields.number(key->second, 0, 1e6);
  };
  factor("scale", experts.scale);
  factor("balance_loss", experts.balance_loss);
  experts.pattern = shortest_period(layers_with_experts(fields, known, job.layers));
  if (experts.pattern == std::vector{true}) experts.pattern.clear();
  if (experts.count > 1) job.experts = experts;
}

}  // namespace plimsoll
