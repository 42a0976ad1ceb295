// Strategy meanings: what each key of a strategy chooses, in a few words.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll {

/// Returns in a few words what a key of a strategy chooses, and an empty text for an unknown key.
std::string_view meaning_of(std::string_view strategy_key);
/// Returns the same and, for a schedule, what the chosen one does.
std::string meaning_of(std::string_view strategy_key, std::string_view value);

}  // namespace plimsoll
