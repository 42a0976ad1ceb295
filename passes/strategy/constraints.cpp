// Reads and writes constraints, as JSON and as flags.
#include "passes/strategy/constraints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "passes/strategy/strategy_fields.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, 3> kLimitWords = {"max", "min", "exclude"};

std::string_view flag_of(LimitKind kind) {
  constexpr std::array<std::string_view, 3> flags = {"--max", "--min", "--exclude"};
  return flags[std::size_t(kind)];
}

using Flag = std::pair<std::string_view, std::string>;

Flag flag_with(std::string_view flag, const std::string& key, const std::string& value) {
  return {flag, fmt::format("{}={}", key, value)};
}

Flag flag_for(const Limit& limit) { return flag_with(flag_of(limit.kind), limit.key, limit.value); }

Flag flag_for(const TriedKey& tried) {
  return flag_with("--try", tried.key, fmt::format("{}", fmt::join(tried.values, ",")));
}

std::string text_of(const Flag& flag) { return fmt::format("{} {}", flag.first, flag.second); }

/// Whether another limit bounds the replicas to the same number from the other side: --fix DP.
bool is_half_of_fix(const Limits& limits, const Limit& limit) {
  return limit.key == kAllReplicas && std::ranges::any_of(limits, [&](const Limit& other) {
           return other.key == limit.key && other.kind != limit.kind && other.value == limit.value;
         });
}

/// Returns what `read` makes of a value. Errors name its place in the file.
template <class Read>
auto read_at(const JsonObject& object, const std::string& key, const Read& read) {
  try {
    return read();
  } catch (const UsageError& error) {
    object.fail(key, error.what());
  }
}

void check_some(const JsonObject& object, const std::string& key,
                const std::vector<std::string>& values) {
  if (values.empty()) object.fail(key, "at least one value is required");
}

}  // namespace

std::string read_choice(std::string_view key, std::string_view value) {
  Strategy strategy;
  set_field(strategy, key, value);
  return field_text(strategy, key);
}

bool is_fixed(const Fixed& fixed, std::string_view key) {
  return std::ranges::any_of(fixed, [&](const auto& pair) { return pair.first == key; });
}

Limit read_limit(LimitKind kind, std::string_view key, std::string_view value) {
  Strategy strategy;
  const std::string_view field = key == kAllReplicas ? "dp" : key;
  set_field(strategy, field, value);
  return {kind, std::string(key), field_text(strategy, field), field_number(strategy, field)};
}

bool is_limited(const Limits& limits, std::string_view key) {
  return std::ranges::find(limits, key, &Limit::key) != limits.end();
}

std::string limit_text(const Limit& limit) { return text_of(flag_for(limit)); }

bool is_tried(const Tried& tried, std::string_view key) {
  return std::ranges::find(tried, key, &TriedKey::key) != tried.end();
}

std::string tried_text(const TriedKey& tried) { return text_of(flag_for(tried)); }

void free_key(Constraints& constraints, std::string_view key) {
  std::erase_if(constraints.fixed, [&](const auto& choice) { return choice.first == key; });
  std::erase_if(constraints.limits, [&](const Limit& limit) { return limit.key == key; });
  std::erase_if(constraints.tried, [&](const TriedKey& tried) { return tried.key == key; });
}

std::vector<std::pair<std::string_view, std::string>> flags_of(const Constraints& constraints) {
  std::vector<Flag> flags;
  for (const auto& [key, value] : constraints.fixed)
    flags.push_back(flag_with("--fix", key, value));
  for (const Limit& limit : constraints.limits) {
    if (!is_half_of_fix(constraints.limits, limit)) {
      flags.push_back(flag_for(limit));
    } else if (limit.kind == LimitKind::most) {
      flags.push_back(flag_with("--fix", limit.key, limit.value));
    }
  }
  for (const TriedKey& tried : constraints.tried) flags.push_back(flag_for(tried));
  return flags;
}

Json constraints_json(const Constraints& constraints) {
  Json json = Json::object();
  for (const auto& [key, value] : constraints.fixed) json["fix"][key] = value;
  for (const Limit& limit : constraints.limits) {
    Json& values = json[kLimitWords[std::size_t(limit.kind)]][limit.key];
    if (limit.kind == LimitKind::excluded) {
      values.push_back(limit.value);
    } else {
      values = limit.value;
    }
  }
  for (const TriedKey& tried : constraints.tried) json["try"][tried.key] = tried.values;
  return json;
}

Constraints constraints_from(JsonObject object) {
  Constraints constraints;
  const auto of_flag = [&](std::string_view flag, const auto& add) {
    if (!object.has(flag)) return;
    JsonObject keys = object.object(flag);
    for (const std::string& key : keys.keys())
      read_at(keys, key, [&] { return add(keys, key), true; });
  };
  of_flag("fix", [&](JsonObject& keys, const std::string& key) {
    constraints.fixed.emplace_back(key, read_choice(key, keys.text(key)));
  });
  for (const LimitKind kind : {LimitKind::most, LimitKind::least, LimitKind::excluded}) {
    of_flag(kLimitWords[std::size_t(kind)], [&](JsonObject& keys, const std::string& key) {
      const std::vector<std::string> values =
          kind == LimitKind::excluded ? keys.texts(key) : std::vector<std::string>{keys.text(key)};
      check_some(keys, key, values);
      for (const std::string& value : values) {
        constraints.limits.push_back(read_limit(kind, key, value));
        const bool bounds = kind != LimitKind::excluded;
        if (bounds ? !constraints.limits.back().number : key == kAllReplicas)
          keys.fail(key, fmt::format("{} has no such limit", key));
      }
    });
  }
  of_flag("try", [&](JsonObject& keys, const std::string& key) {
    TriedKey tried{key, {}};
    const std::vector<std::string> values = keys.texts(key);
    check_some(keys, key, values);
    for (const std::string& value : values) tried.values.push_back(read_choice(key, value));
    constraints.tried.push_back(std::move(tried));
  });
  object.finish();
  return constraints;
}

}  // namespace plimsoll
