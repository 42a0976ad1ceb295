// Tried values: what a search is asked to vary beside the choices that every search varies.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/space/limits.h"

namespace plimsoll {

/// The most combinations of tried values in one search, since each has a space of its own.
inline constexpr std::size_t kMostCombinations = 256;

/// Returns the values that a list such as "delayed,current" has beside the usual one. Keys are
/// those that no search varies, and `schedule`. Throws UsageError for an unknown key (naming the
/// nearest), a bad value, another key, and a list without such a value.
TriedKey make_tried(std::string_view key, std::string_view list);

/// Returns why a search cannot try these values: a key is fixed or given twice, a limit excludes a
/// value, or there are too many combinations.
std::optional<std::string> contradiction(const Fixed& fixed, const Limits& limits,
                                         const Tried& tried);

/// Returns `fixed` with one value of each tried key, or none, in every combination. The first has
/// none, and later keys change faster.
std::vector<Fixed> combinations(const Fixed& fixed, const Tried& tried);

}  // namespace plimsoll
