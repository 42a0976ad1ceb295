// Limits: which values of its choices a search may take.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "passes/strategy/constraints.h"

namespace plimsoll {

/// Returns the limit. Throws UsageError for an unknown key (naming the nearest), a bad value, a key
/// that no search varies, and for bounds of a key whose values have no order.
Limit make_limit(LimitKind kind, std::string_view key, std::string_view value);

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
