// Flag lists are values of flags with a number for each layer or each stage: "8,8,8,8".
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plimsoll {

/// Texts by key, as interop/flags/flag_fields.h has them.
using SettingFields = std::map<std::string, std::string, std::less<>>;

/// Returns the integer that a whole text is.
std::optional<std::int64_t> whole_integer(std::string_view text);

/// Returns the one number that a list has for every layer. The list has as many numbers as the job
/// has layers, where these are known. Throws std::invalid_argument naming the first layer that
/// differs.
std::string from_each_layer(const SettingFields& fields, std::string_view text);
/// Returns the list with the number for each layer of the job.
std::string to_each_layer(const SettingFields& fields, std::string_view value);

/// Returns the fields that a list states, and nothing where `key` names no list: "each_one" (every
/// number is 1, which states nothing), "recomputed" (1 for each layer that is recomputed) and
/// "stage_layers" (layers of each stage). Throws std::invalid_argument.
std::optional<std::vector<std::pair<std::string, std::string>>> fields_of_list(
    const SettingFields& fields, std::string_view key, std::string_view text);

}  // namespace plimsoll
