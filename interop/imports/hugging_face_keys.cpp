// Reads models/presets/readers/hugging-face-keys.json.
#include "interop/imports/hugging_face_keys.h"

#include <algorithm>

#include "models/presets/known_json.h"

namespace plimsoll {
namespace {

struct KnownKeys {
  std::vector<KeyRule> refused, noted;
  std::vector<std::string> silent;
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
    return KnownKeys{rules_from(json.at("refused")), rules_from(json.at("noted")),
                     json.at("silent")};
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
  if (!only.is_null()) return value.is_null() || value == only;
  return is_off(value) || (value.is_number() && value.get<double>() <= most);
}

bool fits(std::string_view pattern, std::string_view key) {
  if (pattern.ends_with('*')) return key.starts_with(pattern.substr(0, pattern.size() - 1));
  return pattern.starts_with('*') ? key.ends_with(pattern.substr(1)) : key == pattern;
}

const std::vector<KeyRule>& key_rules() { return known_keys().refused; }
const std::vector<KeyRule>& noted_keys() { return known_keys().noted; }

bool is_silent(std::string_view key) {
  return std::ranges::any_of(known_keys().silent,
                             [&](const std::string& pattern) { return fits(pattern, key); });
}

}  // namespace plimsoll
