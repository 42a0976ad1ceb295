// Constraints: the choices that a search is held to, limited to, or asked to try. A plan has those
// of its search; command lines are written from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// Choices as key and value. Every candidate of a search has those of --fix.
using Fixed = std::vector<std::pair<std::string, std::string>>;
bool is_fixed(const Fixed& fixed, std::string_view key);
/// Returns a value of a key as field_text() writes it. Throws UsageError as set_field() does.
std::string read_choice(std::string_view key, std::string_view value);

/// The key of dp x sharding_degree, which results print as DP. It is of limits alone.
inline constexpr std::string_view kAllReplicas = "DP";

enum class LimitKind : std::uint8_t { most, least, excluded };

/// A Limit is one --max, --min or --exclude of a choice that searches vary.
struct Limit {
  LimitKind kind = LimitKind::most;
  std::string key;
  std::string value;                   ///< as field_text() writes it
  std::optional<std::int64_t> number;  ///< of integers and byte counts
  bool operator==(const Limit&) const = default;
};
using Limits = std::vector<Limit>;
/// Reads a value of a key. Throws UsageError for an unknown key (naming the nearest) and a bad
/// value.
Limit read_limit(LimitKind kind, std::string_view key, std::string_view value);
bool is_limited(const Limits& limits, std::string_view key);
/// Returns the limit as it stands on a command line: "--max pp=4".
std::string limit_text(const Limit& limit);

/// One --try: values of a key, in addition to those that every search takes.
struct TriedKey {
  std::string key;
  std::vector<std::string> values;  ///< as field_text() writes them; none is the usual one
  bool operator==(const TriedKey&) const = default;
};
using Tried = std::vector<TriedKey>;
bool is_tried(const Tried& tried, std::string_view key);
/// Returns the values as they stand on a command line: "--try fp8=delayed,current".
std::string tried_text(const TriedKey& tried);

struct Constraints {
  Fixed fixed{};
  Limits limits{};
  Tried tried{};
  bool operator==(const Constraints&) const = default;
};

/// Removes all constraints of a key.
void free_key(Constraints& constraints, std::string_view key);

/// Returns the flags that state the constraints, each with its KEY=VALUE. Equal bounds of
/// kAllReplicas are one --fix.
std::vector<std::pair<std::string_view, std::string>> flags_of(const Constraints& constraints);

/// By flag: {"fix": {"pp": "2"}, "max": {...}, "min": {...}, "exclude": {"schedule": ["zb_h1"]},
/// "try": {"fp8": ["delayed"]}}. Flags without a key are left out.
Json constraints_json(const Constraints& constraints);
/// Throws InputError at the place of an unknown key or a bad value.
Constraints constraints_from(JsonObject object);

}  // namespace plimsoll
