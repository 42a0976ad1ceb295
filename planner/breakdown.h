// Breakdown: where the critical rank's step goes, term by term.
#pragma once

#include "base/units.h"
#include "graph/timeline.h"
#include "plan/plan.h"

namespace plimsoll {

/// The rank of `timeline` that computes longest; the lowest of equals. 0 for an empty timeline.
std::int64_t critical_rank(const Timeline& timeline);

/// The critical rank's step of `step_time`, from its first posted interval on, every instant in one
/// term: compute by phase; else a transfer running, or a collective waiting for its last
/// participant: exposed communication; else a send or receive waiting for its peer: bubble; else
/// dispatch. The terms sum to `step_time`. With `pipelined` (pp > 1), waiting for all ranks at the
/// end of the step is bubble too: what is waited for is a stage whose turn comes later.
Breakdown break_down(const Timeline& timeline, Seconds step_time, bool pipelined);

}  // namespace plimsoll
