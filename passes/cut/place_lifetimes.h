// Places for temporaries that live during parts of one routine.
#pragma once

#include <cstddef>
#include <vector>

#include "base/units.h"

namespace plimsoll {

/// Bytes that are used from op `first` to op `last`.
struct Lifetime {
  Bytes size;
  std::size_t first = 0, last = 0;
  Bytes offset;
};

/// Sets offsets so that lifetimes that overlap do not share bytes: largest first, lowest offset
/// that is free. Returns the extent.
Bytes place_lifetimes(std::vector<Lifetime>& lifetimes);

}  // namespace plimsoll
