// Alike cycles: micro-batches whose calls repeat those of the one before.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/program.h"

namespace plimsoll {

/// The longest run of cycles whose calls differ in nothing but the micro-batch and in which buffers
/// they bind: each is that of the cycle before plus `buffers`, and ends as many calls later. A
/// cycle begins where a micro-batch is first called; with interleaved stages, every pp-th.
struct AlikeCycles {
  std::vector<std::size_t> begins;  ///< of all cycles, indices of calls; ascending
  std::size_t first = 0, last = 0;  ///< of the run, both belong to it; last + 1 begins, too
  std::int64_t buffers = 0;         ///< new ones in each cycle
};

/// Nothing where no two cycles that follow each other are alike.
std::optional<AlikeCycles> alike_cycles(const Program& program);

}  // namespace plimsoll
