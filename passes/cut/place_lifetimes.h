// Temporaries that live during parts of one routine get places in its frame.
#pragma once

#include <cstddef>
#include <vector>

#include "base/units.h"

namespace plimsoll {

/// A Lifetime is memory that is used from op `first` to op `last`.
struct Lifetime {
  Bytes size;
  std::size_t first = 0, last = 0;
  Bytes offset;
};

/// Sets offsets so that lifetimes that overlap do not share bytes. The largest is placed first, at
/// the lowest free offset. Returns the extent.
Bytes place_lifetimes(std::vector<Lifetime>& lifetimes);

}  // namespace plimsoll
