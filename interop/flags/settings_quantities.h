// Settings quantities are values that files of settings have and that no strategy states as such:
// counts that follow from each other, and sizes of what a sharded model gathers ahead.
// docs/reference/flags.md lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interop/flags/flag_lists.h"

namespace plimsoll {

/// Returns a quantity of that name, where the fields that it follows from are known.
std::optional<std::string> settings_value(const SettingFields& fields, std::string_view key);
/// Returns the fields that a quantity or a list states, and nothing where `key` is neither. Throws
/// std::invalid_argument saying what is required.
std::optional<std::vector<std::pair<std::string, std::string>>> fields_of_setting(
    const SettingFields& fields, std::string_view key, std::string_view text);

/// Return a value in a unit of settings, and back; nothing where there is no such unit. The units
/// are "each_layer" (a list with the value for each layer), "parameters" (for bytes, of the type
/// that is computed in), "MiB", and "whole_MiB". They throw std::invalid_argument.
std::optional<std::string> in_settings_unit(const SettingFields& fields, std::string_view unit,
                                            std::string_view value);
std::optional<std::string> from_settings_unit(const SettingFields& fields, std::string_view unit,
                                              std::string_view text);

/// Sets "devices" where they follow from the degrees and from "data_parallel", or from the batch
/// and "micro_batches".
void complete_devices(SettingFields& fields);
/// Sets micro_batch or global_batch where flags state "micro_batches", with `width` data-parallel
/// ranks. Throws std::invalid_argument where numbers do not fit together.
void complete_batch(SettingFields& fields, std::int64_t width);

}  // namespace plimsoll
