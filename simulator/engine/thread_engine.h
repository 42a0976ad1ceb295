// The thread engine: ranks are threads on CPU cores, which also carry the communications
// (Execution::threads).
#pragma once

#include <span>

#include "simulator/engine/core_ops.h"

namespace plimsoll {

/// Runs the ops once; starts[r] is the time at which rank r's host begins. The result is exact and
/// deterministic, and a shift of all starts shifts all times. A rendezvous that never ends breaks
/// an invariant (verify_together has refused such programs).
EngineResult run_threads(const CoreOps& ops, std::span<const Picoseconds> starts);

}  // namespace plimsoll
