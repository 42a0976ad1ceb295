// This header says how layer norm and RMS norm spread the columns of a row over the threads of a
// block.
#pragma once

#include <algorithm>
#include <cstdint>

namespace plimsoll {

/// The number of values of one row that a thread keeps in registers.
inline constexpr int kNormValues = 16;

/// Returns the threads of a block that holds one row, in whole warps.
inline int norm_threads(std::int64_t columns) {
  const std::int64_t needed = (columns + kNormValues - 1) / kNormValues;
  return int((needed + 31) / 32 * 32);
}

/// Returns the rows that run at once.
inline unsigned norm_blocks(std::int64_t rows, std::int64_t most) {
  return unsigned(std::clamp<std::int64_t>(most, 1, std::max<std::int64_t>(rows, 1)));
}

}  // namespace plimsoll
