// Typed indices keep an index of one kind of thing from being used as an index of another.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace plimsoll {

/// An Id is an index into the array that owns things of kind `Tag`. It is only constructed
/// explicitly.
template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(std::size_t index) : index_(static_cast<std::uint32_t>(index)) {}
  constexpr std::size_t index() const { return index_; }
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  std::uint32_t index_ = 0;
};

}  // namespace plimsoll
