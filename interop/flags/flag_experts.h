// Flags of experts and of latent attention: quantities that follow from other fields, and the
// fields that they state. Functions that read throw std::invalid_argument.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "interop/flags/flag_fields.h"

namespace plimsoll {

/// Return whether the fields have experts, and latent attention; back, "false" is refused if fields
/// have them.
std::optional<std::string> has_experts(const FlagFields& fields);
StatedFields experts_from(const FlagFields& fields, std::string_view text);
std::optional<std::string> has_latent(const FlagFields& fields);
StatedFields latent_from(const FlagFields& fields, std::string_view text);

/// Returns which layers have experts: "1", "([0]*3+[1]*58)" or "[0,1,0,1]".
std::optional<std::string> expert_layers(const FlagFields& fields);
StatedFields dense_layers_from(const FlagFields& fields, std::string_view text);

/// Returns the number of ranks that share each expert.
std::optional<std::string> expert_ranks(const FlagFields& fields);
StatedFields etp_from(const FlagFields& fields, std::string_view text);

/// Returns the number of groups of experts that a token takes, if their score is the sum of those
/// of their chosen / groups best experts.
std::optional<std::string> best_groups(const FlagFields& fields);
StatedFields groups_from(const FlagFields& fields, std::string_view text);

}  // namespace plimsoll
