// Strategy meanings: what each key of a strategy chooses, in a few words.
#pragma once

#include <string_view>

namespace plimsoll {

/// Returns in a few words what a key of a strategy chooses, and an empty text for an unknown key.
std::string_view meaning_of(std::string_view strategy_key);

}  // namespace plimsoll
