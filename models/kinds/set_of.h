// A set of enumerators or small integers is one word.
#pragma once

#include <compare>
#include <cstdint>
#include <initializer_list>

namespace plimsoll {

/// A SetOf holds enumerators, or integers from 0 to 31.
template <class T>
class SetOf {
 public:
  using Element = T;
  constexpr SetOf() = default;
  constexpr SetOf(std::initializer_list<T> values) {
    for (T value : values) add(value);
  }
  constexpr void add(T value) { bits_ |= bit(value); }
  constexpr bool has(T value) const { return (bits_ & bit(value)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  auto operator<=>(const SetOf&) const = default;

 private:
  static constexpr std::uint32_t bit(T value) { return std::uint32_t{1} << unsigned(value); }
  std::uint32_t bits_ = 0;
};

}  // namespace plimsoll
