// Flag values: numbers as texts of flags, and the units in which flags state fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "interop/flags/flag_fields.h"

namespace plimsoll {

std::string decimal(std::int64_t value);
/// Returns the parts of a text between separators, one at least.
std::vector<std::string> split(std::string_view text, char separator);
/// Returns the integer that a whole text is.
std::optional<std::int64_t> integer_from(std::string_view text);
/// Returns the number that a whole text is, if it is a finite one.
std::optional<double> number_from(std::string_view text);
/// Returns the number in the form that JSON takes, integers without a point.
std::string plain_number(std::string_view text);
/// Returns a field that is an integer from 1, also if it follows from others.
std::optional<std::int64_t> count_of(const FlagFields& fields, std::string_view key);
/// Returns whether a field is known and has another value than `usual`.
bool differs(const FlagFields& fields, std::string_view key, std::string_view usual);

/// Return a value in a unit, and back; docs/reference/flags.md lists the units. Throw
/// std::invalid_argument that states what is required.
std::string in_unit(const FlagFields& fields, std::string_view unit, std::string_view value);
std::string from_unit(const FlagFields& fields, std::string_view unit, std::string_view text);

}  // namespace plimsoll
