// A second simulator of ranks, to which the engines are compared: it goes picosecond by
// picosecond and looks at everything at each of them. It is slow, and as plain as the rules of
// simulator/engine/engine.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "simulator/engine/engine.h"

namespace plimsoll {

/// As run_engine(). The ops must not wait for each other in a circle: such a run ends by an
/// exception after a million picoseconds.
EngineResult run_by_the_clock(std::span<const std::vector<TimedOp>> ranks, Execution execution,
                              std::span<const Picoseconds> starts, const WakeUpCost& wake_up = {},
                              std::span<const MutualSlowdown> slowdowns = {});

}  // namespace plimsoll
