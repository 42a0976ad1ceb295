// Times the local communicator's collectives and transfers.
#pragma once

#include "base/units.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

/// One collective, or `send` (2 ranks), among threads of this process: from the last arrival to
/// completion. As many groups as the cores hold communicate at once. Every rank has written its
/// operand and then touched more memory, as a producing op would; operands rotate over `footprint`
/// bytes per rank.
CollectivePoint measure_collective(OpKind kind, std::int64_t ranks, Bytes payload, Bytes footprint,
                                   std::int64_t samples);

/// From the completion of a transfer to the return of a rank that slept while it waited for it.
Sample measure_wake_up(std::int64_t samples);

}  // namespace plimsoll
