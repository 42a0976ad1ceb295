// The sizes and choices of a model are read from a config.json here.
#include "interop/imports/model_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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
  const bool may_group = switched(fields, known, "grouped").value_or(true);
  if (fields.has(grouped) && may_group) job.kv_heads = fields.size(grouped);
  // null: the classes of DeepSeek-V2 have usual attention without latents (DeepSeek-OCR).
  const std::string& rank = known.key("latent_kv_rank");
  if (!rank.empty() && fields.has(rank)) {
    if (fields.has("use_mla") && !fields.boolean("use_mla"))
      fields.fail("use_mla", fmt::format("without latent attention, {} is null", rank));
    Latent& latent = job.latent.emplace();
    for (const char* sum : {"head_dim", "qk_head_dim"}) fields.mark_read(sum);
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

bool is_exact(std::string_view word, const Architecture& known) {
  return !known.tanh_gelu && (word == "gelu" || word == "gelu_python");
}

/// The activations of llama jobs and the one of the others (Activation in models/job/job.h).
void read_activation(ConfigFields& fields, const Architecture& known, Job& job) {
  const std::string& key = known.key("activation");
  const std::string word = fields.text(key);
  if (known.family != Family::llama) {
    if (!is_gelu(word)) fields.fail(key, "gpt and bert jobs have GELU");
    job.activation_params.exact = is_exact(word, known);
    return;
  }
  const bool silu = word == "silu" || word == "swish";
  if (known.gated && silu) {
    job.activation = Activation::swiglu;
  } else if (is_gelu(word)) {
    job.activation = known.gated ? Activation::geglu : Activation::gelu;
    job.activation_params.exact = is_exact(word, known);
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
  job.attention_gate = known.always.attention_gate;
  const auto read = [&](std::string_view what, bool always) {
    return switched(fields, known, what).value_or(always);
  };
  job.qkv_bias = read("qkv_bias", known.always.qkv_bias);
  job.out_bias = read("out_bias", known.always.out_bias);
  job.mlp_bias = read("mlp_bias", known.always.mlp_bias);
  job.qk_norm = read("qk_norm", known.always.qk_norm);
  job.qk_l2_norm = read("qk_l2_norm", false);
  job.alibi = read("alibi", known.always.alibi);
  job.alibi_scaled = job.alibi && known.always.alibi_scaled;
  job.learned_positions = known.always.learned_positions;
  if (job.activation == Activation::swiglu) job.activation_params = known.always.activation_params;
  job.qk_norm_across_heads = known.always.qk_norm_across_heads;
  job.head_bias = read("head_bias", known.always.head_bias);
  for (const auto& [size, cap] :
       {std::pair("score_cap", &job.score_cap), std::pair("logit_cap", &job.logit_cap),
        std::pair("gate_limit", &job.activation_params.limit)}) {
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
    const bool full = type == "full_attention" || type == "attention";
    windowed.push_back(!full);
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

}  // namespace

std::vector<bool> pattern_of(const std::vector<bool>& layers) {
  std::vector<bool> pattern = shortest_period(layers);
  if (pattern == std::vector{true}) pattern.clear();
  return pattern;
}

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
  if (!known.key("gate_and_up").empty()) job.ffn_hidden = fields.size(known.key("gate_and_up")) / 2;
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

void read_factors(ConfigFields& fields, const Architecture& known, Job& job) {
  const auto read = [&](const char* name, double& factor) {
    const auto powers = known.factors.find(name);
    if (powers == known.factors.end()) return;
    double product = 1;
    for (const auto& [key, power] : powers->second) {
      if (key != "head" && !fields.has(key)) return;  // the model lacks this one
      if (key != "head" && fields.raw(key).is_boolean()) {
        if (!fields.boolean(key)) return;
        continue;
      }
      const double value = key == "head" ? double(head_width(job)) : fields.number(key, 1e-6, 1e6);
      product *= std::pow(value, power);
    }
    factor *= product;
  };
  read("embedding", job.factors.embedding);
  read("branch", job.factors.branch);
  read("scores", job.factors.scores);
  read("logits", job.factors.logits);
  for (double* factor :
       {&job.factors.embedding, &job.factors.branch, &job.factors.scores, &job.factors.logits}) {
    if (std::abs(*factor - 1) < 1e-9) *factor = 1;  // 128^-0.5 times 128^0.5
  }
}

void read_epsilon(ConfigFields& fields, Job& job) {
  for (const char* key : {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon",
                          "layernorm_epsilon", "norm_eps", "norm_epsilon"}) {
    if (fields.has(key)) job.norm_epsilon = fields.number(key, 0, 1);
  }
  const std::optional<double> stated = std::exchange(job.norm_epsilon, std::nullopt);
  if (stated != epsilon_of(job)) job.norm_epsilon = stated;
}

void read_windows(ConfigFields& fields, const Architecture& known, Job& job) {
  const Windows layers = windowed(fields, known, job.layers);
  const double base = std::exchange(job.rotary.window_base, 0);
  if (layers && std::ranges::find(*layers, true) == layers->end()) return;
  if (layers && known.turns_windowed && fields.has("sliding_window"))
    job.rotary.pattern = pattern_of(*layers);
  for (const std::string& key : {std::string("sliding_window"), std::string(kChunkSize)}) {
    if (!fields.has(key)) continue;
    const std::int64_t window = fields.size(key);
    const bool chunks = sees_chunks(fields, known);
    if (layers && (key == kChunkSize) == chunks) {
      job.window = window;
      job.window_chunks = chunks;
      job.window_pattern = pattern_of(*layers);
      if (base != job.rotary.base) job.rotary.window_base = base;
      const bool scaled = job.rotary.scale.kind != RotaryScaling::none;
      if (scaled && (known.scales_full_layers || base > 0) && job.rotary.window_base == 0)
        job.rotary.window_base = job.rotary.base;
    }
    if (window >= job.sequence || job.window > 0) continue;
    fields.fail(key, fmt::format("it is not known which layers of models of this type see all {} "
                                 "tokens; --sequence {} or less fits in the window",
                                 job.sequence, window));
  }
}

}  // namespace plimsoll
