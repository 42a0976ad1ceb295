// Each enumeration has one array of names, which is searched both ways. This header is internal to
// graph.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace plimsoll {

template <class Enum, std::size_t N>
std::optional<Enum> enumerator_from(const std::array<std::string_view, N>& names,
                                    std::string_view text) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == text) return Enum(i);
  }
  return std::nullopt;
}

}  // namespace plimsoll
