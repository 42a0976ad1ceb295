// Whether a text of output states values, in whatever words.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace plimsoll {

/// Returns whether the values are in the text in this order, all of them within `kNear` characters
/// of the first one: a sentence or a row of a table.
inline testing::AssertionResult states(std::string_view text,
                                       std::initializer_list<std::string_view> values) {
  constexpr std::size_t kNear = 400;
  const std::string_view first = *values.begin();
  for (auto begin = text.find(first); begin != text.npos; begin = text.find(first, begin + 1)) {
    const std::string_view near = text.substr(begin, kNear);
    std::size_t at = 0;
    if (std::ranges::all_of(values, [&](std::string_view value) {
          at = near.find(value, at);
          if (at == near.npos) return false;
          at += value.size();
          return true;
        })) {
      return testing::AssertionSuccess();
    }
  }
  auto result = testing::AssertionFailure() << "not stated in this order:";
  for (const std::string_view value : values) result << " \"" << value << '"';
  return result << "; the text: " << text;
}

}  // namespace plimsoll
