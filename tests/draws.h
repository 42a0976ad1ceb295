// How many draws a random test makes, and which, can be set from outside.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>

namespace plimsoll {

/// The draws [first, first + count).
struct Draws {
  std::int64_t first = 0, count = 0;
  bool from_outside = false;
};

/// Returns the draws of the environment's `variable`, as FIRST:COUNT, else the usual ones. Throws
/// std::invalid_argument where the variable is anything else.
inline Draws wanted_draws(const Draws& usual, const char* variable = "PLIMSOLL_DRAWS") {
  const char* given = std::getenv(variable);
  if (given == nullptr) return usual;
  std::istringstream text(given);
  Draws draws{.from_outside = true};
  char colon = 0;
  if (!(text >> draws.first >> colon >> draws.count) || colon != ':' || !(text >> std::ws).eof())
    throw std::invalid_argument(std::string(variable) + " is FIRST:COUNT; found " + given);
  return draws;
}

}  // namespace plimsoll
