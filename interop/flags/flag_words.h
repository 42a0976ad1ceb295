// Flag words are options with several values, in any order, of which each is a word for a part of a
// strategy's field.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "interop/flags/flag_fields.h"

namespace plimsoll {

/// Returns whether a word of a row stands for such values: "{KEY:WORD=PART,WORD=PART}". A word
/// without a part is read and states nothing. Of several words for a part the first is written.
bool stands_for_words(std::string_view pattern);

/// Returns the words for a field's parts, in the order of the pattern. The result is empty where
/// the field has no parts, or one that has no word.
std::optional<std::vector<std::string>> words_of_field(const FlagFields& fields,
                                                       std::string_view pattern);

/// Returns the field that words state. Throws std::invalid_argument where a word is not known, or
/// where all of them state nothing.
StatedFields field_of_words(std::string_view pattern, std::span<const std::string> words);

}  // namespace plimsoll
