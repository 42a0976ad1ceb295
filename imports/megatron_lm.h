// Reads scripts and flag files that start Megatron-LM.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "imports/imported.h"

namespace plimsoll {

/// Returns whether a text has flags of Megatron-LM that every job has.
bool looks_like_megatron_lm(std::string_view text);

/// Reads the job, the strategy and the framework's switches by
/// models/presets/flags/megatron-lm.json, whose rows name their sources. `devices` takes the place
/// of what the file says of them. Without both there is no strategy. The job is named after the
/// file. Throws InputError with the line of a flag that no job, strategy or framework states, or
/// that contradicts another.
Imported read_megatron_lm(std::string_view text, const std::string& file,
                          std::optional<std::int64_t> devices = {});

}  // namespace plimsoll
