// Times the local communicator's collectives and transfers.
#pragma once

#include "base/units.h"
#include "models/calibration.h"

namespace plimsoll {

/// One collective, or `send` (2 ranks), among threads of this process: from the last arrival to
/// completion. Every rank has just written its operand, as a producing op would; operands rotate
/// over `footprint` bytes per rank.
CollectivePoint measure_collective(OpKind kind, std::int64_t ranks, Bytes payload, Bytes footprint,
                                   std::int64_t samples);

}  // namespace plimsoll
