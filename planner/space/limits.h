// Limits: which values of its choices a search may take, beside those that it tries by itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "passes/strategy/strategy.h"

namespace plimsoll {

/// KEY=VALUE pairs from --fix. Every candidate has these values.
using Fixed = std::vector<std::pair<std::string, std::string>>;
bool is_fixed(const Fixed& fixed, std::string_view key);

/// The key of dp x sharding_degree, which results print as DP. It is of limits alone.
inline constexpr std::string_view kAllReplicas = "DP";

enum class LimitKind : std::uint8_t { most, least, excluded };

/// A Limit is one --max, --min or --exclude of a choice that searches vary.
struct Limit {
  LimitKind kind = LimitKind::most;
  std::string key;
  std::string value;                   ///< as field_text() writes it
  std::optional<std::int64_t> number;  ///< of integers and byte counts
};
using Limits = std::vector<Limit>;

/// Returns the limit. Throws UsageError for an unknown key (naming the nearest), a bad value, a key
/// that no search varies, and for bounds of a key whose values have no order.
Limit make_limit(LimitKind kind, std::string_view key, std::string_view value);
/// Returns the limit as it stands on a command line: "--max pp=4".
std::string limit_text(const Limit& limit);
bool is_limited(const Limits& limits, std::string_view key);

/// Returns why no strategy can keep all of these: the limits of a key leave no value, a key is
/// bounded twice from one side, or a fixed value is outside a limit of its key.
std::optional<std::string> contradiction(const Fixed& fixed, const Limits& limits);

/// Whether the choice changes anything in this strategy. Numbers of ranks and layers always count.
bool has_effect(const Strategy& strategy, std::string_view key);

/// Whether the strategy's value of a key is within all limits. The number of recompute_layers is
/// the number of layers that are recomputed: 0 without recompute, and above every bound where all
/// are. A choice without effect, such as the schedule of a single stage, is within all limits.
bool is_within(const Limits& limits, const Strategy& strategy, std::string_view key);

}  // namespace plimsoll
