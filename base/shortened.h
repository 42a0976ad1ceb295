// This header cuts texts that are put together from others' texts, which may each be long.
#pragma once

#include <cstddef>
#include <string>

namespace plimsoll {

/// Returns the text, or its beginning of at most `most` bytes where it is longer. No character of
/// UTF-8 is cut in two.
std::string shortened(std::string text, std::size_t most);

}  // namespace plimsoll
