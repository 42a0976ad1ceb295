// Flag quantities are values of flags that no file has as such: they follow from fields, and some
// of them state fields. docs/reference/flags.md lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interop/flags/flag_fields.h"

namespace plimsoll {

/// Return the integer that a whole text is, and a field that is an integer from 1.
std::optional<std::int64_t> integer_from(std::string_view text);
std::optional<std::int64_t> count_of(const FlagFields& fields, std::string_view key);
/// Returns the number that a whole text is, where it is a finite one.
std::optional<double> number_from(std::string_view text);
/// Returns the number in the form that JSON takes, integers without a point.
std::string plain_number(std::string_view text);

/// Returns the quantity of that name, where the fields that it follows from are known.
std::optional<std::string> derived_value(const FlagFields& fields, std::string_view key);
/// Returns the fields that a quantity states, and nothing where `key` is no such quantity. Throws
/// std::invalid_argument saying what is required.
std::optional<std::vector<std::pair<std::string, std::string>>> stated_fields(
    const FlagFields& fields, std::string_view key, std::string_view text);

/// Return a value in a unit of flags, and back. The units are "elements" of gradients for bytes,
/// "without_end", which leaves out one word of a vocabulary, "share" for percents, "float", which
/// is a number with a point, and "text", which documents have in quotes. They throw
/// std::invalid_argument.
std::string in_unit(const FlagFields& fields, std::string_view unit, std::string_view value);
std::string from_unit(const FlagFields& fields, std::string_view unit, std::string_view text);

}  // namespace plimsoll
