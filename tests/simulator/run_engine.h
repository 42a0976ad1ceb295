// Runs ops on the engine for their rule, as simulate() does with those of Programs.
#pragma once

#include <span>
#include <vector>

#include "simulator/engine/engine.h"

namespace plimsoll {

/// Runs the ops of some ranks once. starts[r] is the time at which rank r's host begins; empty: all
/// begin at 0. Every rank that issues a rendezvous takes part in it. A rendezvous that never ends
/// breaks an invariant.
EngineResult run_engine(std::span<const std::vector<TimedOp>> ranks, Execution execution,
                        std::span<const Picoseconds> starts = {}, const WakeUpCost& wake_up = {},
                        std::span<const MutualSlowdown> slowdowns = {});

}  // namespace plimsoll
