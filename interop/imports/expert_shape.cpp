// The experts of a model are read from a config.json here.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "interop/imports/model_shape.h"
#include "models/job/job_words.h"

namespace plimsoll {
namespace {

/// An architecture's file may name a key for these: the keys of `experts` in a job, and the number
/// of shared experts, each as wide as the others.
/// Further ones say which layers have experts: every n-th one, those up to a last one, those of a
/// list of their numbers or of true and false, those that are not in a list, or those that a list
/// of all layers calls "sparse".
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
                                       "layers_balance_loss",
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
    const auto is_boolean = [](const Json& layer) { return layer.is_boolean(); };
    if (listed && list.size() == found.size() && std::ranges::all_of(list, is_boolean)) {
      for (std::size_t i = 0; i < found.size(); ++i) found[i] = list[i].get<bool>();
      continue;
    }
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
  object.finish();
  return known;
}

void read_experts(ConfigFields& fields, const ExpertKeys& known, Job& job) {
  Experts experts = known.always;
  const auto size = [&](const char* what, std::int64_t& value, std::int64_t least) {
    const auto key = known.keys.find(what);
    if (key == known.keys.end() || !fields.has(key->second)) return;
    value = size_of_layers(fields, key->second, least, job.layers);
  };
  experts.ffn_hidden = job.ffn_hidden;
  size("count", experts.count, 0);
  size("chosen", experts.chosen, experts.count > 1 ? 1 : 0);
  size("ffn_hidden", experts.ffn_hidden, 1);
  size("shared_ffn_hidden", experts.shared_ffn_hidden, 0);
  size("dense_ffn_hidden", experts.dense_ffn_hidden, 0);
  std::int64_t shared = 0;
  size("shared_experts", shared, 0);
  // A width that is stated next to a number of shared experts is that of one.
  const std::int64_t own = experts.shared_ffn_hidden;
  if (shared > 0) experts.shared_ffn_hidden = shared * (own > 0 ? own : experts.ffn_hidden);
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
  // The loss of all layers, which the library adds if it has the routers' logits, is a mean over
  // tokens and not over choices (models/mixtral, load_balancing_loss_func).
  double of_layers = 0;
  factor("layers_balance_loss", of_layers);
  if (known.keys.contains("layers_balance_loss") && fields.boolean("output_router_logits") &&
      of_layers > 0) {
    experts.balance_layers = true;
    experts.balance_loss = of_layers * double(experts.chosen);
  }
  if (experts.count <= 1) return;
  experts.pattern = pattern_of(layers_with_experts(fields, known, job.layers));
  job.experts = experts;
}

}  // namespace plimsoll
