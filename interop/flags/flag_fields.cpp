// Converts jobs, strategies and frameworks to texts by key, and back.
#include "interop/flags/flag_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <type_traits>

#include "base/json.h"
#include "interop/flags/flag_parts.h"
#include "interop/flags/flag_quantities.h"
#include "interop/flags/flag_values.h"
#include "models/framework/framework_fields.h"
#include "models/job/job_words.h"
#include "models/presets/known_json.h"
#include "models/presets/presets.h"
#include "passes/strategy/recompute_rules.h"

namespace plimsoll {
namespace {

constexpr std::string_view kOfFramework = "framework.";
constexpr std::string_view kModules = "modules";
enum class Form : std::uint8_t { number, boolean, text, list };

/// A JobKey is a key of job files.
struct JobKey {
  std::string key;
  Form form;
  bool of_model;  ///< false: it is about how the model is trained
};

constexpr std::string_view kOfTraining[] = {
    "sequence",   "global_batch", "precision", "fp32_parameters", "mask_probability",
    "optimizer.", "loss_scale.",  "clip_norm", "dropout",         "seed",
    "adapters.",  "frozen",       "lengths",   "packing",         "balanced"};

/// Adds the keys of an object of models/presets/schemas/job.json.
void add_keys(const Json& object, const Json& definitions, const std::string& prefix,
              std::vector<JobKey>& keys) {
  for (const auto& [name, value] : object.at("properties").items()) {
    const std::string key = prefix + name;
    const Json& inner = definitions.contains(key) ? definitions.at(key) : value;
    if (inner.contains("properties")) {
      add_keys(inner, definitions, key + ".", keys);
      continue;
    }
    const Json& types = value.at("type");
    const std::string type = types.is_array() ? types.front() : types;
    const Form form = type == "boolean"  ? Form::boolean
                      : type == "string" ? Form::text
                      : type == "array"  ? Form::list
                                         : Form::number;
    const bool of_model = std::ranges::none_of(
        kOfTraining, [&](std::string_view start) { return key.starts_with(start); });
    keys.push_back({key, form, of_model});
  }
}

const std::vector<JobKey>& job_keys() {
  static const std::vector<JobKey> keys = [] {
    const Json schema = known_json(schema_presets(), "job");
    std::vector<JobKey> all;
    add_keys(schema, schema.at("definitions"), "", all);
    return all;
  }();
  return keys;
}

const JobKey* job_key_of(std::string_view key) {
  const auto found = std::ranges::find(job_keys(), key, &JobKey::key);
  return found == job_keys().end() ? nullptr : &*found;
}

bool is_strategy_key(std::string_view key) {
  return std::ranges::find(strategy_keys(), key) != strategy_keys().end();
}

bool has_form(std::string_view key, Form form) {
  const JobKey* known = job_key_of(key);
  return known != nullptr && known->form == form;
}

std::string text_of_json(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  return value.dump();
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
  if (const JobKey* known = job_key_of(key)) return known->form == Form::boolean;
  if (key == "precision_aware") return true;
  bool boolean = false;
  for_each_field(bundled_framework(), [&](const FieldPlace& place, const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, bool>)
      boolean = boolean ||
                (key.starts_with(kOfFramework) && key.substr(kOfFramework.size()) == place.key);
  });
  if (!is_strategy_key(key)) return boolean;
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
  add_json(fields, "", parse_json(job_text(job), job.name));
  // Files leave out the usual ones.
  const auto set = [&](const char* key, const auto& value) {
    fields[key] = fmt::format("{}", value);
  };
  set("norm_epsilon", epsilon_of(job));
  set("exact_gelu", job.activation_params.exact);
  if (job.family != Family::llama) return fields;
  set("out_bias", job.out_bias);
  set("mlp_bias", job.mlp_bias);
  set("qk_norm", job.qk_norm);
  set("qk_l2_norm", job.qk_l2_norm);
  set("sinks", job.sinks);
  set("rotary_fraction", job.rotary.fraction);
  const RotaryScale& scale = job.rotary.scale;
  set("rotary_scaling.kind", to_text(scale.kind));
  set("rotary_scaling.factor", scale.factor);
  set("rotary_scaling.original", scale.original);
  set("rotary_scaling.low", scale.low);
  set("rotary_scaling.high", scale.high);
  set("rotary_scaling.whole_columns", scale.whole_columns);
  set("rotary_scaling.amplitude", scale.amplitude);
  set("gate_limit", job.activation_params.limit);
  set("gate_sharpness", job.activation_params.sharpness);
  set("gate_offset", job.activation_params.offset);
  set("activation", kActivations[std::size_t(job.activation)]);
  set("norm", kNorms[std::size_t(job.norm)]);
  set("norm_place", kNormPlaces[std::size_t(job.norm_place)]);
  set("mlp_input", kMlpInputs[std::size_t(job.mlp_input)]);
  if (job.latent) {
    fields.erase("head_size");
    set("latent.q_rank", job.latent->q_rank);
  } else {
    set("head_size", head_width(job));
  }
  if (!job.mtp) set("mtp.depths", 0);
  if (!job.experts) return fields;
  const Experts& experts = *job.experts;
  set("experts.shared_gate", experts.shared_gate);
  set("experts.bias", experts.bias);
  set("experts.router_bias", experts.router_bias);
  set("experts.scaled_input", experts.scaled_input);
  set("experts.drop_overflow", experts.drop_overflow);
  set("experts.shared_ffn_hidden", experts.shared_ffn_hidden);
  set("experts.dense_ffn_hidden", experts.dense_ffn_hidden);
  set("experts.latent_hidden", experts.latent_hidden);
  set("experts.dense_layers", experts.dense_layers);
  set("experts.groups", experts.groups);
  set("experts.top_groups", experts.top_groups);
  set("experts.group_best", experts.group_best);
  set("experts.balance_sequences", experts.balance_sequences);
  set("experts.scale", experts.scale);
  set("experts.capacity", experts.capacity);
  set("experts.balance_loss", experts.balance_loss);
  set("experts.selection_bias", experts.selection_bias);
  set("experts.z_loss", experts.z_loss);
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
void set_job_key(Json& json, std::string_view key, const FlagFields& fields) {
  const auto field = fields.find(key);
  if (field == fields.end()) return;
  const auto scaling = fields.find("rotary_scaling.kind");
  const bool unscaled = scaling == fields.end() || scaling->second == "none";
  if (key.starts_with("rotary_scaling.") && unscaled) return;
  constexpr std::string_view kNone[] = {"latent.q_rank",           "mtp.depths",
                                        "rotary_scaling.original", "rotary_scaling.low",
                                        "rotary_scaling.high",     "gate_limit"};
  const bool none = std::ranges::find(kNone, key) != std::end(kNone);
  if (none && field->second == "0") return;  // files leave it out
  const auto loss = fields.find("experts.balance_loss");
  const bool lost = loss == fields.end() || same_value(loss->second, "0");
  if (key == "experts.balance_sequences" && lost) return;  // it is of no loss
  const std::size_t dot = key.find('.');
  Json& object = dot == key.npos ? json : json[std::string(key.substr(0, dot))];
  const std::string name(dot == key.npos ? key : key.substr(dot + 1));
  if (has_form(key, Form::text)) {
    object[name] = field->second;
  } else {
    object[name] = Json::parse(field->second);
  }
}

}  // namespace

Job job_of(const FlagFields& fields, const std::string& file) {
  Json json = Json::object();
  for (const JobKey& known : job_keys()) set_job_key(json, known.key, fields);
  return parse_job(json.dump(), file);
}

Job job_over(const Job& job, const FlagFields& fields, const std::string& file) {
  Json json = Json::parse(job_text(job));
  const auto kind = fields.find("optimizer.kind");
  if (kind != fields.end() && json["optimizer"].value("kind", kind->second) != kind->second)
    json.erase("optimizer");
  for (const JobKey& known : job_keys()) {
    if (!known.of_model) set_job_key(json, known.key, fields);
  }
  return parse_job(json.dump(), file);
}

FlagFields fields_of_model(const Job& job) {
  FlagFields fields = fields_of_job(job);
  std::erase_if(fields, [](const auto& field) {
    const JobKey* known = job_key_of(field.first);
    return known == nullptr || !known->of_model;
  });
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
  // Frameworks take a module in addition to the whole that repeats it.
  strategy.recomputed.modules = without_parts(strategy.recomputed.modules);
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
                              other.can.ranks.pipeline.value == base->can.ranks.pipeline.value;
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

std::optional<FlagPlaceholder> placeholder_of(std::string_view word) {
  if (!word.starts_with('{') || !word.ends_with('}')) return std::nullopt;
  const std::string_view inside = word.substr(1, word.size() - 2);
  const std::size_t colon = std::min(inside.find(':'), inside.size());
  return FlagPlaceholder{inside.substr(0, colon),
                         inside.substr(std::min(colon + 1, inside.size()))};
}

std::optional<std::string> wanted_value(const FlagFields& fields, const std::string& text) {
  const auto placeholder = placeholder_of(text);
  if (!placeholder) return text;
  const auto value = value_of(fields, placeholder->key);
  if (!value || placeholder->unit.empty()) return value;
  return from_unit(fields, placeholder->unit, *value);
}

std::optional<std::string> written_value(const FlagFields& fields, FlagPlaceholder placeholder) {
  if (placeholder.key == kModules) return modules_of(fields, placeholder.unit);
  const auto value = value_of(fields, placeholder.key);
  if (!value || placeholder.unit.empty()) return value;
  return in_unit(fields, placeholder.unit, *value);
}

StatedFields read_value(const FlagFields& fields, FlagPlaceholder placeholder,
                        std::string_view text) {
  if (placeholder.key == kModules) return split_from_modules(fields, placeholder.unit, text);
  const std::string key(placeholder.key);
  if (auto stated = stated_fields(fields, key, text)) return *std::move(stated);
  std::string value(text);
  if (!placeholder.unit.empty()) value = from_unit(fields, placeholder.unit, text);
  const bool of_strategy = is_strategy_key(key);
  if (has_form(key, Form::text)) return {{key, value}};
  if (has_form(key, Form::list) && value.starts_with('[')) return {{key, value}};
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
