// Flags of experts and of latent attention: keys that follow from other fields, and what they
// state.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "interop/flags/flag_parts.h"

namespace plimsoll {

/// Returns the value of has_experts, has_latent, expert_layers, best_groups or expert_ranks
/// (docs/reference/flags.md), where it follows from the fields.
std::optional<std::string> expert_value(const FlagFields& fields, std::string_view key);

/// Returns the fields that a text states for one of these keys, or nothing for other keys. Throws
/// std::invalid_argument saying what is required.
std::optional<StatedFields> fields_of_experts(const FlagFields& fields, std::string_view key,
                                              std::string_view text);

}  // namespace plimsoll
