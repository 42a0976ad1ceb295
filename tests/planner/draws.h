// The number of draws of a test can be set from outside.
#pragma once

#include <cstdlib>
#include <string>

namespace plimsoll {

/// Returns PLIMSOLL_DRAWS, else the usual number. 10,000 take some minutes.
inline int draws(int usual) {
  const char* wanted = std::getenv("PLIMSOLL_DRAWS");
  return wanted == nullptr ? usual : std::stoi(wanted);
}

}  // namespace plimsoll
