// Execution::processes: hosts run local items, and rendezvous go on beside them.
#pragma once

#include <span>

#include "simulator/engine/engine.h"
#include "simulator/engine/host_engine.h"

namespace plimsoll {

/// One run of the engine's items. Exact: what is left of an item is counted in picoseconds times
/// kFullSpeed, and only when it ends is that rounded up to a picosecond. Deterministic: a shift of
/// all starts shifts all results, and the order of what happens at one instant changes nothing.
EngineResult run_processes(const HostEngine& engine, std::span<const Picoseconds> starts);

}  // namespace plimsoll
