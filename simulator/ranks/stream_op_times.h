// Stream op times: from the result of a StreamEngine back to the times of every op of a rank.
#pragma once

#include <vector>

#include "simulator/ranks/stream_ranks.h"

namespace plimsoll {

/// Returns when each op of a rank ran, in issue order. `result` is that of a run with Record::all,
/// in which the rank's host began at `start`. No calls of the rank may be skipped.
std::vector<OpTimes> stream_op_times(const StreamRank& rank, const StreamEngine::Result& result,
                                     Picoseconds start);

}  // namespace plimsoll
