// The local communicator's collectives and transfers are timed among threads of this process.
#pragma once

#include "base/units.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

/// Times one collective, or `send` (2 ranks), from the last arrival to completion. As many groups
/// as the cores hold communicate at once. Before, every rank has written its operand and then
/// touched more memory, as an op that computes it would do. Operands rotate over `footprint` bytes
/// per rank.
CollectivePoint measure_collective(OpKind kind, std::int64_t ranks, Bytes payload, Bytes footprint,
                                   std::int64_t samples);

/// Times a rank that slept while it waited for a transfer, from the completion to its return.
Sample measure_wake_up(std::int64_t samples);

}  // namespace plimsoll
