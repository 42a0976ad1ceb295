// The files of models/presets/architectures are read here.
#include "interop/imports/architecture.h"

#include <algorithm>
#include <utility>

#include "interop/imports/model_shape.h"
#include "models/job/job_words.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

/// The keys that most of the library's classes use.
const std::map<std::string, std::string, std::less<>>& usual_keys() {
  static const std::map<std::string, std::string, std::less<>> keys = {
      {"layers", "num_hidden_layers"},
      {"hidden", "hidden_size"},
      {"heads", "num_attention_heads"},
      {"kv_heads", "num_key_value_heads"},
      {"ffn_hidden", "intermediate_size"},
      {"vocab", "vocab_size"},
      {"positions", "max_position_embeddings"},
      {"tied_embeddings", "tie_word_embeddings"},
      {"activation", "hidden_act"},
      {"token_types", "type_vocab_size"},
      {"head_size", "head_dim"},
      {"rotary_base", "rope_theta"},
      {"window", ""},              // of all layers, or of a pattern
      {"window_period", ""},       // the last layer of each period lacks the window
      {"window_rotary_base", ""},  // of layers that have the window
      {"latent_q_rank", ""},
      {"latent_kv_rank", ""},  // empty: the model has no latent attention
      {"latent_nope", ""},
      {"latent_rope", ""},
      {"latent_value", ""},
      {"score_cap", ""},
      {"logit_cap", ""},
      {"mtp_depths", ""},
      {"gate_limit", ""},
      {"gate_and_up", ""},      // columns of both together, in place of ffn_hidden
      {"rotary_ratio", ""},     // a factor of the base
      {"rotary_width", ""},     // columns that are turned, in place of their fraction
      {"unturned_period", ""},  // the last layer of each period has no rotary embeddings
      {"growth_factor", ""},    // of queries, by their positions
      {"growth_span", ""},      // tokens
      {"parallel_norms", ""},   // before attention and a parallel MLP
      {"rotary_fraction", "partial_rotary_factor"},
  };
  return keys;
}

using Keys = std::map<std::string, std::string, std::less<>>;

void read_keys(JsonObject object, Keys& into) {
  for (const std::string& size : object.keys()) {
    if (!usual_keys().contains(size)) object.fail(size, "it is no size of a job");
    into[size] = object.text(size);
  }
}

void read_switches(JsonObject object, Keys& into) {
  constexpr std::string_view kKnown[] = {"qkv_bias",   "out_bias",     "mlp_bias", "qk_norm",
                                         "qk_l2_norm", "parallel_mlp", "own_norm", "alibi",
                                         "head_bias",  "query_growth", "grouped"};
  for (const std::string& what : object.keys()) {
    if (std::ranges::find(kKnown, what) == std::end(kKnown))
      object.fail(what, "it is no switch of a model");
    into[what] = object.text(what);
  }
}

/// Reads what all models of an architecture have.
void read_always(JsonObject object, Job& job) {
  for (const auto& [key, value] :
       {std::pair("qkv_bias", &job.qkv_bias), std::pair("out_bias", &job.out_bias),
        std::pair("mlp_bias", &job.mlp_bias), std::pair("qk_norm", &job.qk_norm),
        std::pair("qk_norm_across_heads", &job.qk_norm_across_heads),
        std::pair("attention_gate", &job.attention_gate), std::pair("sinks", &job.sinks),
        std::pair("norm_bias", &job.norm_bias), std::pair("embedding_norm", &job.embedding_norm),
        std::pair("alibi", &job.alibi), std::pair("head_bias", &job.head_bias),
        std::pair("alibi_scaled", &job.alibi_scaled),
        std::pair("learned_positions", &job.learned_positions)}) {
    if (object.has(key)) *value = object.boolean(key);
  }
  if (object.has("norm")) job.norm = static_cast<NormKind>(object.choice("norm", kNorms));
  if (object.has("norm_place"))
    job.norm_place = static_cast<NormPlace>(object.choice("norm_place", kNormPlaces));
  ActivationParams& gate = job.activation_params;
  if (object.has("gate_sharpness")) gate.sharpness = object.number("gate_sharpness", 0, 1e6);
  if (object.has("gate_offset")) gate.offset = object.number("gate_offset", -1e6, 1e6);
  if (object.has("growth_ahead")) job.rotary.growth.ahead = object.integer("growth_ahead", 0, 1);
  if (object.has("mlp_input"))
    job.mlp_input = static_cast<MlpInput>(object.choice("mlp_input", kMlpInputs));
  object.finish();
}

void read_dropouts(JsonObject object, Architecture& architecture) {
  if (object.has("embedding")) architecture.embedding_dropout = object.text("embedding");
  if (object.has("attention")) architecture.attention_dropout = object.text("attention");
  if (object.has("residual")) architecture.residual_dropout = object.text("residual");
  object.finish();
}

std::vector<LeftOut> left_out_from(JsonObject& architecture) {
  std::vector<LeftOut> all;
  for (JsonObject& object : architecture.objects("left_out")) {
    all.push_back({object.has("key") ? object.text("key") : "", object.text("note")});
    object.finish();
  }
  return all;
}

std::map<std::string, std::map<std::string, double>, std::less<>> factors_from(JsonObject object) {
  constexpr std::string_view kKnown[] = {"embedding", "branch", "scores", "logits"};
  std::map<std::string, std::map<std::string, double>, std::less<>> factors;
  for (const std::string& name : object.keys()) {
    if (std::ranges::find(kKnown, name) == std::end(kKnown))
      object.fail(name, "it is no factor of a job");
    JsonObject powers = object.object(name);
    for (const std::string& key : powers.keys()) factors[name][key] = powers.number(key, -4, 4);
  }
  return factors;
}

Architecture architecture_from(const Preset& preset) {
  const std::string file = std::string(preset.name) + ".json";
  const Json value = parse_json(preset.text, file);
  JsonObject object(value, file);
  Architecture architecture;
  architecture.name = preset.name;
  architecture.source = object.text("source");
  architecture.classes = object.texts("classes");
  if (object.has("model_types")) architecture.model_types = object.texts("model_types");
  architecture.keys = usual_keys();
  architecture.family = static_cast<Family>(object.choice("family", kFamilies));
  if (object.has("gated")) architecture.gated = object.boolean("gated");
  if (object.has("joined")) architecture.joined = object.texts("joined");
  if (object.has("always")) read_always(object.object("always"), architecture.always);
  if (object.has("switches")) read_switches(object.object("switches"), architecture.switches);
  if (object.has("keys")) read_keys(object.object("keys"), architecture.keys);
  if (object.has("aliases")) read_keys(object.object("aliases"), architecture.aliases);
  if (object.has("dropouts")) read_dropouts(object.object("dropouts"), architecture);
  if (object.has("factors")) architecture.factors = factors_from(object.object("factors"));
  for (const auto& [key, value] :
       {std::pair("tanh_gelu", &architecture.tanh_gelu),
        std::pair("scales_full_layers", &architecture.scales_full_layers),
        std::pair("turns_windowed", &architecture.turns_windowed),
        std::pair("softmax_of_yarn", &architecture.softmax_of_yarn)}) {
    if (object.has(key)) *value = object.boolean(key);
  }
  if (object.has("requires")) architecture.required = object.raw("requires");
  if (object.has("inert")) architecture.inert = object.texts("inert");
  if (object.has("left_out")) architecture.left_out = left_out_from(object);
  if (object.has("experts")) architecture.experts = expert_keys_from(object.object("experts"));
  architecture.defaults = object.raw("defaults");
  object.finish();
  return architecture;
}

}  // namespace

bool is_usual_key(std::string_view key) {
  return std::ranges::any_of(usual_keys(), [&](const auto& usual) { return usual.second == key; });
}

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all = [] {
    std::vector<Architecture> read;
    for (const Preset& preset : architecture_presets()) read.push_back(architecture_from(preset));
    return read;
  }();
  return all;
}

const Architecture* architecture_of_type(std::string_view model_type) {
  const auto found = std::ranges::find_if(architectures(), [&](const Architecture& known) {
    return known.name == model_type ||
           std::ranges::find(known.model_types, model_type) != known.model_types.end();
  });
  return found == architectures().end() ? nullptr : &*found;
}

const Architecture* architecture_of_class(std::string_view name) {
  const auto found = std::ranges::find_if(architectures(), [&](const Architecture& known) {
    return std::ranges::find(known.classes, name) != known.classes.end();
  });
  return found == architectures().end() ? nullptr : &*found;
}

std::vector<std::string> supported_architectures() {
  std::vector<std::string> names;
  for (const Architecture& known : architectures()) names.push_back(known.name);
  return names;
}

}  // namespace plimsoll
