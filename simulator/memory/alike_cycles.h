// Alike cycles: micro-batches whose calls repeat those of the one before.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/program.h"

namespace plimsoll {

/// The longest run of cycles whose calls differ only in their micro-batch and in the buffers that
/// they bind. A buffer's number is that of the cycle before plus `buffers`, and the buffer lives
/// for as many calls. A cycle begins at the first call of a micro-batch; with interleaved stages,
/// of every pp-th micro-batch.
struct AlikeCycles {
  std::vector<std::size_t> begins;  ///< of all cycles: indices of calls, ascending
  std::size_t first = 0,
              last = 0;      ///< cycles of the run, both included; cycle last + 1 begins, too
  std::int64_t buffers = 0;  ///< new buffers in each cycle
};

/// Returns nothing where no two consecutive cycles are alike.
std::optional<AlikeCycles> alike_cycles(const Program& program);

}  // namespace plimsoll
