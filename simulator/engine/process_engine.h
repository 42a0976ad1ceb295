// The process engine: ranks are processes on CPU cores, and communications go on beside their local
// ops (Execution::processes).
#pragma once

#include <span>

#include "simulator/engine/core_ops.h"

namespace plimsoll {

/// Runs the ops once; starts[r] is the time at which rank r's host begins. The result is exact:
/// what is left of an op is counted in picoseconds times kFullSpeed, and only the op's end is
/// rounded up to a picosecond. The order of events at one instant changes nothing, and a shift of
/// all starts shifts all times.
EngineResult run_processes(const CoreOps& ops, std::span<const Picoseconds> starts);

}  // namespace plimsoll
