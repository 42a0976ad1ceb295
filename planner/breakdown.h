// Breakdown: where the critical rank's step goes, term by term.
#pragma once

#include <span>

#include "base/units.h"
#include "graph/timeline.h"
#include "plan/plan.h"

namespace plimsoll {

/// The critical rank's step of `step_time`, op by op (Simulation::critical), from its first posted
/// interval on, every instant in one term: compute by phase; else a transfer running, or a
/// collective waiting for its last participant: exposed communication; else a send or receive
/// waiting for its peer: bubble; else dispatch. The terms sum to `step_time`. With `pipelined` (pp
/// > 1), waiting for all ranks at the end of the step is bubble too: what is waited for is a stage
/// whose turn comes later.
Breakdown break_down(std::span<const Interval> critical, Seconds step_time, bool pipelined);

}  // namespace plimsoll
