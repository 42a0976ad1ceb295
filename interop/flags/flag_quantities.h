// Flag quantities are values of flags that no file has as such: they follow from fields, and some
// of them state fields. docs/reference/flags.md lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "interop/flags/flag_fields.h"

namespace plimsoll {

constexpr std::int64_t kMostRanks = std::int64_t{1} << 22;

/// Returns the quantity of that name, if the fields that it follows from are known.
std::optional<std::string> derived_value(const FlagFields& fields, std::string_view key);
/// Returns the fields that a quantity states, and nothing if `key` is no such quantity. Throws
/// std::invalid_argument that states what is required.
std::optional<StatedFields> stated_fields(const FlagFields& fields, std::string_view key,
                                          std::string_view text);

/// Returns the ranks of "devices" that read different sequences, if the other degrees divide them.
std::optional<std::int64_t> data_parallel(const FlagFields& fields);
/// Returns the rows to which the framework pads the vocabulary.
std::optional<std::string> padded_vocabulary(const FlagFields& fields);
/// Returns the least power of two with which `ranks` of tensor parallelism pad the vocabulary to so
/// many rows, else the one multiple that does so.
std::int64_t multiple_for(const FlagFields& fields, std::int64_t rows, std::int64_t ranks);

}  // namespace plimsoll
