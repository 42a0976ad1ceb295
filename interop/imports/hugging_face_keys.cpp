// Reads models/presets/readers/hugging-face-keys.json.
#include "interop/imports/hugging_face_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "models/presets/known_json.h"

namespace plimsoll {
namespace {

struct KnownKeys {
  std::vector<KeyRule> types, refused, noted;
  std::vector<std::string> silent, angles;
};

std::vector<KeyRule> rules_from(const Json& list) {
  std::vector<KeyRule> rules;
  for (const Json& one : list) {
    KeyRule& rule = rules.emplace_back(KeyRule{one.at("keys"), one.at("because")});
    rule.only = one.value("fine", Json());
    rule.most = one.value("most", 0.0);
    const std::string always = one.value("unless", "");
    if (always == "qk_norm") rule.always = &Job::qk_norm;
    if (always == "qkv_bias") rule.always = &Job::qkv_bias;
  }
  return rules;
}

const KnownKeys& known_keys() {
  static const KnownKeys keys = [] {
    const Json json = known_json(reader_presets(), "hugging-face-keys");
    return KnownKeys{rules_from(json.at("types")), rules_from(json.at("refused")),
                     rules_from(json.at("noted")), json.at("silent"), json.at("angles")};
  }();
  return keys;
}

}  // namespace

bool is_off(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == 0;
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.empty();
}

bool KeyRule::fine(const Json& value) const {
  const auto is_only = [&](const Json& one) { return one == only; };
  if (!only.is_null())
    return value.is_null() || is_only(value) ||
           (value.is_array() && std::ranges::all_of(value, is_only));
  return is_off(value) || (value.is_number() && value.get<double>() <= most);
}

bool fits(std::string_view pattern, std::string_view key) {
  if (pattern.ends_with('*')) return key.starts_with(pattern.substr(0, pattern.size() - 1));
  return pattern.starts_with('*') ? key.ends_with(pattern.substr(1)) : key == pattern;
}

bool fits_any(const std::vector<std::string>& patterns, std::string_view key) {
  return std::ranges::any_of(patterns,
                             [&](const std::string& pattern) { return fits(pattern, key); });
}

const KeyRule* type_rule(std::string_view type) {
  const std::vector<KeyRule>& rules = known_keys().types;
  const auto found =
      std::ranges::find_if(rules, [&](const KeyRule& rule) { return fits_any(rule.keys, type); });
  return found == rules.end() ? nullptr : &*found;
}

const std::vector<KeyRule>& key_rules() { return known_keys().refused; }
const std::vector<KeyRule>& noted_keys() { return known_keys().noted; }

std::string other_layers(const Json& object) {
  for (const char* key : {"layer_types", "layers_block_type"}) {
    const auto types = object.find(key);
    if (types == object.end() || !types->is_array()) continue;
    std::map<std::string, std::size_t> others;
    for (const Json& type : *types) {
      const bool usual = type == "full_attention" || type == "sliding_attention" ||
                         type == "chunked_attention" || type == "attention";
      if (!usual) ++others[type.dump()];
    }
    if (others.empty()) continue;
    const auto& [type, count] =
        *std::ranges::max_element(others, {}, [](const auto& other) { return other.second; });
    return fmt::format(
        "{} has {} in {} of {} layers; a layer of a job has full attention, a window or chunks",
        key, printable(type), count, types->size());
  }
  return "";
}

bool is_of_angles(std::string_view name) { return fits_any(known_keys().angles, name); }

bool is_silent(std::string_view key) { return fits_any(known_keys().silent, key); }

bool is_known(const Architecture& architecture, std::string_view key) {
  const auto named = [&](const auto& keys) {
    return std::ranges::any_of(keys, [&](const auto& known) { return known.second == key; });
  };
  if (key == "no_rope_layers") return !architecture.key("unturned_period").empty();
  const auto is_factor = [&](const auto& factor) {
    return factor.second.contains(std::string(key));
  };
  const auto is_left_out = [&](const LeftOut& left_out) { return left_out.key == key; };
  if (std::ranges::any_of(architecture.factors, is_factor) ||
      std::ranges::any_of(architecture.left_out, is_left_out) ||
      architecture.required.contains(std::string(key)) || fits_any(architecture.inert, key))
    return true;
  return named(architecture.switches) || named(architecture.keys) || named(architecture.aliases) ||
         (architecture.experts && named(architecture.experts->keys));
}

/// Returns KEY of "{KEY}": a value that has to be that of another key.
static std::string key_in_braces(const Json& required) {
  if (!required.is_string()) return "";
  const auto& text = required.get_ref<const std::string&>();
  return text.starts_with('{') && text.ends_with('}') ? text.substr(1, text.size() - 2) : "";
}

std::vector<KeyFault> key_faults(ConfigFields& fields, const Architecture& architecture) {
  std::vector<KeyFault> faults;
  for (const auto& [key, required] : architecture.required.items()) {
    const std::string other = key_in_braces(required);
    if (!fields.has(key) || (!other.empty() && !fields.has(other))) continue;
    const Json& value = other.empty() ? required : fields.raw(other);
    if (fields.raw(key) != value)
      faults.push_back(
          {key, fmt::format("{} is required: so are models of this type", value.dump())});
  }
  if (!architecture.inert.empty() && !fields.has("layer_types"))
    faults.push_back({"layer_types", "it must say that every layer has attention"});
  for (const KeyRule& rule : key_rules()) {
    for (const std::string& pattern : rule.keys) {
      for (const auto& [key, value] : fields.stated().items()) {
        if (!fits(pattern, key) || is_known(architecture, key)) continue;
        fields.mark_read(key);
        const bool has = rule.always != nullptr && architecture.always.*rule.always;
        if (!rule.fine(value) && !(has && value == true)) faults.push_back({key, rule.message});
      }
    }
  }
  return faults;
}

}  // namespace plimsoll
