// Breakdown: where the critical rank's step goes, term by term.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "graph/timeline.h"
#include "plan/plan.h"

namespace plimsoll {

/// The share of the communication over one group in a step.
struct GroupTime {
  std::string group;           ///< "mp", "sharding,dp"; "pp": transfers between stages
  Picoseconds wait, transfer;  ///< exposed: nothing is computed meanwhile
  Picoseconds hidden;          ///< data moves while the rank computes: no part of the sum
  bool operator==(const GroupTime&) const = default;
};

/// A step in whole picoseconds. forward + recompute + backward + optimizer + bubble + dispatch, and
/// wait + transfer of every group, are exactly `step`.
struct StepParts {
  Picoseconds step, forward, recompute, backward, optimizer, bubble, dispatch;
  std::vector<GroupTime> communication;  ///< by name of the group
  bool operator==(const StepParts&) const = default;
};

/// The critical rank's step of `step_time`, op by op (Simulation::critical), from its first posted
/// interval on, every instant in one term: compute by phase; else a transfer running, or a
/// collective waiting for its last participant: exposed communication, of the group that is first
/// in `names` where there are several; else a send or receive waiting for its peer: bubble; else
/// dispatch. What runs into the next step is cut off there. With `pipelined` (pp > 1), waiting for
/// all ranks at the end of the step is bubble too: what is waited for is a stage whose turn comes
/// later.
///
/// `group_of`: of each interval, its place in `names` (Simulation::critical_group, groups).
StepParts take_apart(std::span<const Interval> critical, std::span<const std::uint16_t> group_of,
                     std::span<const std::string> names, Seconds step_time, bool pipelined);

/// The breakdown in seconds, with the communication over all groups together; sums to `step_time`.
Breakdown break_down(const StepParts& parts, Seconds step_time);
Breakdown break_down(std::span<const Interval> critical, Seconds step_time, bool pipelined);

}  // namespace plimsoll
