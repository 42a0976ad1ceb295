// Converts jobs, strategies and frameworks to texts by key, and back.
#include "interop/flags/flag_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <type_traits>

#include "base/json.h"
#include "interop/flags/flag_parts.h"
#include "interop/flags/flag_quantities.h"
#include "interop/flags/flag_values.h"
#include "models/framework/framework_fields.h"
#include "models/job/job_words.h"
#include "passes/strategy/recompute_rules.h"

namespace plimsoll {
namespace {

constexpr std::string_view kOfFramework = "framework.";
constexpr std::string_view kModules = "modules:";
/// Keys of job files whose values are texts; the others are numbers, true or false.
constexpr std::string_view kTexts[] = {"name",       "family",        "precision",
                                       "activation", "norm",          "norm_place",
                                       "mlp_input",  "experts.score", "optimizer.kind"};
/// Keys of job files that flags may state and that say what the model is.
constexpr std::string_view kModelKeys[] = {"name",
                                           "family",
                                           "layers",
                                           "hidden",
                                           "heads",
                                           "kv_heads",
                                           "ffn_hidden",
                                           "vocab",
                                           "tied_embeddings",
                                           "head_size",
                                           "qkv_bias",
                                           "out_bias",
                                           "mlp_bias",
                                           "qk_norm",
                                           "qk_l2_norm",
                                           "sinks",
                                           "window",
                                           "window_chunks",
                                           "window_pattern",
                                           "rotary_base",
                                           "rotary_fraction",
                                           "activation",
                                           "norm",
                                           "norm_place",
                                           "mlp_input",
                                           "latent.q_rank",
                                           "latent.kv_rank",
                                           "latent.nope",
                                           "latent.rope",
                                           "latent.value",
                                           "experts.count",
                                           "experts.chosen",
                                           "experts.ffn_hidden",
                                           "experts.shared_ffn_hidden",
                                           "experts.shared_gate",
                                           "experts.dense_ffn_hidden",
                                           "experts.latent_hidden",
                                           "experts.bias",
                                           "experts.router_bias",
                                           "experts.scaled_input",
                                           "experts.dense_layers",
                                           "experts.pattern",
                                           "experts.score",
                                           "experts.normalized",
                                           "experts.scale",
                                           "experts.groups",
                                           "experts.top_groups",
                                           "experts.group_best",
                                           "experts.capacity",
                                           "experts.drop_overflow",
                                           "experts.balance_loss",
                                           "experts.balance_sequences",
                                           "experts.z_loss",
                                           "experts.selection_bias",
                                           "mtp.depths",
                                           "mtp.loss_weight"};

/// The other keys of job files that flags may state: they say how the model is trained.
constexpr std::string_view kTrainingKeys[] = {"sequence",
                                              "global_batch",
                                              "precision",
                                              "optimizer.kind",
                                              "optimizer.learning_rate",
                                              "optimizer.momentum",
                                              "optimizer.beta1",
                                              "optimizer.beta2",
                                              "optimizer.epsilon",
                                              "optimizer.weight_decay",
                                              "loss_scale.initial",
                                              "loss_scale.growth_interval",
                                              "clip_norm",
                                              "dropout",
                                              "seed"};

template <class Range>
bool has(const Range& keys, std::string_view key) {
  return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
}

std::string text_of_json(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  return value.dump();
}

/// Adds what files leave out of experts and of latent attention.
void add_usual(const Job& job, FlagFields& fields) {
  if (job.latent) {
    fields.erase("head_size");
    fields["latent.q_rank"] = fmt::format("{}", job.latent->q_rank);
  }
  if (job.family == Family::llama && !job.mtp) fields["mtp.depths"] = "0";
  if (!job.experts) return;
  const Experts& experts = *job.experts;
  for (const auto& [key, value] :
       {std::pair("shared_ffn_hidden", experts.shared_ffn_hidden),
        std::pair("dense_ffn_hidden", experts.dense_ffn_hidden),
        std::pair("latent_hidden", experts.latent_hidden),
        std::pair("dense_layers", experts.dense_layers), std::pair("groups", experts.groups),
        std::pair("top_groups", experts.top_groups), std::pair("group_best", experts.group_best),
        std::pair("balance_sequences", experts.balance_sequences)})
    fields[fmt::format("experts.{}", key)] = fmt::format("{}", value);
  for (const auto& [key, value] :
       {std::pair("scale", experts.scale), std::pair("capacity", experts.capacity),
        std::pair("balance_loss", experts.balance_loss),
        std::pair("selection_bias", experts.selection_bias), std::pair("z_loss", experts.z_loss)})
    fields[fmt::format("experts.{}", key)] = fmt::format("{}", value);
}

void add_json(FlagFields& fields, const std::string& prefix, const Json& object) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      add_json(fields, prefix + key + ".", value);
    } else {
      fields[prefix + key] = text_of_json(value);
    }
  }
}

std::string framework_text(bool value) { return value ? "true" : "false"; }
std::string framework_text(std::int64_t value) { return fmt::format("{}", value); }
template <class Value>
std::string framework_text(const Value& value) {
  if constexpr (requires { words_of(value); }) {
    return std::string(words_of(value)[std::size_t(value)]);
  } else {
    return "";  // times and bytes: no flag states them
  }
}

/// Returns whether a key's values are true and false.
bool is_boolean(std::string_view key) {
  constexpr std::string_view kBooleans[] = {"tied_embeddings",
                                            "qkv_bias",
                                            "out_bias",
                                            "mlp_bias",
                                            "qk_norm",
                                            "experts.normalized",
                                            "experts.shared_gate",
                                            "experts.bias",
                                            "experts.router_bias",
                                            "experts.scaled_input",
                                            "experts.drop_overflow",
                                            "qk_l2_norm",
                                            "sinks",
                                            "window_chunks",
                                            "alibi",
                                            "norm_bias",
                                            "embedding_norm",
                                            "precision_aware",
                                            "has_experts",
                                            "has_latent"};
  if (has(kBooleans, key)) return true;
  bool boolean = false;
  for_each_field(bundled_framework(), [&](const FieldPlace& place, const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, bool>)
      boolean = boolean ||
                (key.starts_with(kOfFramework) && key.substr(kOfFramework.size()) == place.key);
  });
  if (!has(strategy_keys(), key)) return boolean;
  const std::string usual = field_text(Strategy(), key);
  return usual == "true" || usual == "false";
}

void set_framework_field(bool& field, std::string_view text) { field = text == "true"; }
void set_framework_field(std::int64_t& field, std::string_view text) {
  std::from_chars(text.data(), text.data() + text.size(), field);
}
template <class Value>
void set_framework_field(Value& field, std::string_view text) {
  if constexpr (requires { words_of(field); }) {
    const auto words = words_of(field);
    const auto word = std::find(words.begin(), words.end(), text);
    INVARIANT(word != words.end(), "flag tables have words of frameworks");
    field = Value(word - words.begin());
  }
}

}  // namespace

FlagFields fields_of_job(const Job& job) {
  FlagFields fields;
  const std::string text = job_text(job);
  add_json(fields, "", parse_json(text, job.name));
  if (job.family == Family::llama) {  // files leave out the usual ones
    fields["head_size"] = fmt::format("{}", head_width(job));
    fields["out_bias"] = job.out_bias ? "true" : "false";
    fields["mlp_bias"] = job.mlp_bias ? "true" : "false";
    fields["qk_norm"] = job.qk_norm ? "true" : "false";
    fields["qk_l2_norm"] = job.qk_l2_norm ? "true" : "false";
    fields["sinks"] = job.sinks ? "true" : "false";
    if (job.experts) {
      const Experts& experts = *job.experts;
      for (const auto& [key, value] :
           {std::pair("shared_gate", experts.shared_gate), std::pair("bias", experts.bias),
            std::pair("router_bias", experts.router_bias),
            std::pair("scaled_input", experts.scaled_input),
            std::pair("drop_overflow", experts.drop_overflow)}) {
        fields[fmt::format("experts.{}", key)] = value ? "true" : "false";
      }
    }
    fields["rotary_fraction"] = fmt::format("{}", job.rotary_fraction);
    fields["activation"] = kActivations[std::size_t(job.activation)];
    fields["norm"] = kNorms[std::size_t(job.norm)];
    fields["norm_place"] = kNormPlaces[std::size_t(job.norm_place)];
    fields["mlp_input"] = kMlpInputs[std::size_t(job.mlp_input)];
  }
  add_usual(job, fields);
  return fields;
}

FlagFields fields_of(const Job& job, const Strategy& strategy, const Framework& framework) {
  FlagFields fields = fields_of_job(job);
  for (const std::string_view key : strategy_keys()) {
    std::string value = field_text(strategy, key);
    if (key.ends_with("_bytes")) value = fmt::format("{}", parse_bytes(value).count());
    fields[std::string(key)] = std::move(value);
  }
  fields["framework"] = framework.name;
  for_each_field(framework, [&](const FieldPlace& place, const auto& value) {
    fields[std::string(kOfFramework) + std::string(place.key)] = framework_text(value);
  });
  return fields;
}

namespace {

/// Sets a key of a job's file from its field, if there is one.
void set_key(Json& json, std::string_view key, const FlagFields& fields) {
  const auto field = fields.find(key);
  if (field == fields.end()) return;
  const bool none = key == "latent.q_rank" || key == "mtp.depths";
  if (none && field->second == "0") return;  // files leave it out
  const auto loss = fields.find("experts.balance_loss");
  const bool lost = loss == fields.end() || same_value(loss->second, "0");
  if (key == "experts.balance_sequences" && lost) return;  // it is of no loss
  const std::size_t dot = key.find('.');
  Json& object = dot == key.npos ? json : json[std::string(key.substr(0, dot))];
  const std::string name(dot == key.npos ? key : key.substr(dot + 1));
  if (has(kTexts, key)) {
    object[name] = field->second;
  } else {
    object[name] = Json::parse(field->second);
  }
}

}  // namespace

Job job_of(const FlagFields& fields, const std::string& file) {
  Json json = Json::object();
  for (const std::string_view key : kModelKeys) set_key(json, key, fields);
  for (const std::string_view key : kTrainingKeys) set_key(json, key, fields);
  return parse_job(json.dump(), file);
}

Job job_over(const Job& job, const FlagFields& fields, const std::string& file) {
  Json json = Json::parse(job_text(job));
  const auto kind = fields.find("optimizer.kind");
  if (kind != fields.end() && json["optimizer"].value("kind", kind->second) != kind->second)
    json.erase("optimizer");
  for (const std::string_view key : kTrainingKeys) set_key(json, key, fields);
  return parse_job(json.dump(), file);
}

FlagFields fields_of_model(const Job& job) {
  FlagFields fields = fields_of_job(job);
  std::erase_if(fields, [](const auto& field) { return !has(kModelKeys, field.first); });
  return fields;
}

Strategy strategy_of(const FlagFields& fields, const std::string& file) {
  Strategy strategy;
  try {
    for (const std::string_view key : strategy_keys()) {
      if (const auto field = fields.find(key); field != fields.end())
        set_field(strategy, key, field->second);
    }
  } catch (const UsageError& error) {
    throw InputError(file, "", error.what());
  }
  // Frameworks take a module beside the whole that repeats it.
  strategy.recompute_modules = without_parts(strategy.recompute_modules);
  return strategy;
}

namespace {

/// Returns the values of a framework's fields, to compare them.
std::vector<std::string> values_of(const Framework& framework) {
  std::vector<std::string> values;
  for_each_field(framework, [&](const FieldPlace&, const auto& value) {
    if constexpr (requires { value.count(); }) {
      values.push_back(fmt::format("{}", value.count()));
    } else if constexpr (requires { value.value(); }) {
      values.push_back(fmt::format("{}", value.value()));
    } else {
      values.push_back(framework_text(value));
    }
  });
  return values;
}

/// Whether a framework differs from `base` only as `read` does, in one field at least.
bool is_variant(const Framework& framework, const Framework& base, const Framework& read) {
  const auto own = values_of(framework), usual = values_of(base), found = values_of(read);
  bool differs = false;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i] == usual[i]) continue;
    if (own[i] != found[i]) return false;
    differs = true;
  }
  return differs;
}

/// Returns the framework with the fields that flags state.
Framework with_fields(Framework framework, const FlagFields& fields, const std::string& file) {
  for_each_field(framework, [&](const FieldPlace& place, auto& value) {
    const auto field = fields.find(std::string(kOfFramework) + std::string(place.key));
    if (field == fields.end()) return;
    const auto number = number_from(field->second);
    if (number && !(*number >= place.least && *number <= place.most)) {
      throw InputError(file, "",
                       fmt::format("{} is {}; a number from {} to {} is required", place.key,
                                   field->second, place.least, place.most));
    }
    set_framework_field(value, field->second);
  });
  return framework;
}

}  // namespace

Framework framework_of(const FlagFields& fields, const std::string& file) {
  const auto name = fields.find("framework");
  const Framework* base = name == fields.end() ? nullptr : find_framework(name->second);
  if (base == nullptr) throw InputError(file, "", "the flags state no built-in framework");
  Framework framework = with_fields(*base, fields, file);
  for (const Framework& other : all_frameworks()) {
    // A program without pipelines has a flag that names it.
    const bool same_program = calibrated_as(other) == base->name && other.name != base->name &&
                              other.can.pipeline.value == base->can.pipeline.value;
    if (same_program && is_variant(other, *base, framework))
      return with_fields(other, fields, file);
  }
  return framework;
}

bool same_value(std::string_view a, std::string_view b) {
  if (a == b) return true;
  const auto first = number_from(a), second = number_from(b);
  return first && second && *first == *second;
}

std::optional<std::string> value_of(const FlagFields& fields, std::string_view key) {
  if (const auto field = fields.find(key); field != fields.end()) return field->second;
  return derived_value(fields, key);
}

std::optional<std::string> written_value(const FlagFields& fields, std::string_view placeholder) {
  const std::size_t colon = placeholder.find(':');
  if (placeholder.starts_with(kModules)) return modules_of(fields, placeholder.substr(colon + 1));
  const auto value = value_of(fields, placeholder.substr(0, colon));
  if (!value || colon == placeholder.npos) return value;
  return in_unit(fields, placeholder.substr(colon + 1), *value);
}

StatedFields read_value(const FlagFields& fields, std::string_view placeholder,
                        std::string_view text) {
  const std::size_t colon = placeholder.find(':');
  if (placeholder.starts_with(kModules))
    return split_from_modules(fields, placeholder.substr(colon + 1), text);
  const std::string key(placeholder.substr(0, colon));
  if (auto stated = stated_fields(fields, key, text)) return *std::move(stated);
  std::string value(text);
  if (colon != placeholder.npos) value = from_unit(fields, placeholder.substr(colon + 1), text);
  const bool of_strategy = has(strategy_keys(), key);
  if (has(kTexts, key)) return {{key, value}};
  if (is_boolean(key)) {
    if (value != "true" && value != "false")
      throw std::invalid_argument("true or false is required");
    return {{key, value}};
  }
  if (!number_from(value)) throw std::invalid_argument("a number is required");
  if (of_strategy) {
    Strategy scratch;
    try {
      set_field(scratch, key, value);
    } catch (const UsageError& error) {
      throw std::invalid_argument(error.what());
    }
  }
  return {{key, plain_number(value)}};
}

}  // namespace plimsoll
