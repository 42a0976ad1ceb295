// How the columns of a row lie over the threads of a block, for layer norm and RMS norm.
#pragma once

#include <algorithm>
#include <cstdint>

namespace plimsoll {

/// Values of one row that a thread keeps in registers.
inline constexpr int kNormValues = 16;

/// Threads of a block that holds one row, whole warps.
inline int norm_threads(std::int64_t columns) {
  const std::int64_t needed = (columns + kNormValues - 1) / kNormValues;
  return int((needed + 31) / 32 * 32);
}

/// Rows that are worked on at once.
inline unsigned norm_blocks(std::int64_t rows, std::int64_t most) {
  return unsigned(std::clamp<std::int64_t>(most, 1, std::max<std::int64_t>(rows, 1)));
}

}  // namespace plimsoll
