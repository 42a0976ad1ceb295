// Typed indices: an index of one kind of thing is not an index of another.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace plimsoll {

/// Index into the array that owns things of kind `Tag`. Only explicit construction.
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
