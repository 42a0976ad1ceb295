// Usual values of a strategy's keys, for who types one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

/// Returns values of a key that `--fix` takes: every word of a choice, the powers of two among
/// small integers. The result is empty for an unknown key. Other values may be allowed, too.
std::vector<std::string> usual_values(std::string_view key);

}  // namespace plimsoll
