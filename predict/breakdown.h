// Breakdown: divides the step of the critical rank into terms: compute, communication, bubble,
// host.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "plan/plan.h"
#include "simulator/critical_op.h"

namespace plimsoll {

/// The communication over one group in a step.
struct GroupTime {
  std::string group;           ///< "mp", "sharding,dp"; "pp" stands for transfers between stages
  Picoseconds wait, transfer;  ///< exposed: the rank computes nothing meanwhile
  Picoseconds hidden;          ///< data moves while the rank computes; no part of the step's sum
  bool operator==(const GroupTime&) const = default;
};

/// A step in whole picoseconds. The terms from `forward` to `dispatch`, and `wait` and `transfer`
/// of every group, sum exactly to `step`.
struct StepParts {
  Picoseconds step, forward, recompute, backward, optimizer, bubble, dispatch;
  std::vector<GroupTime> communication;  ///< in order of the groups' names
  bool operator==(const StepParts&) const = default;
};

/// Divides the critical rank's step of `step_time`, op by op (Simulation::critical), from the first
/// posted op on. Every instant belongs to one term, the first of these that applies:
///
///   compute, by phase       an op on the compute stream runs
///   exposed communication   a transfer runs, or a collective waits for its last participant
///   bubble                  a send or receive waits for its peer
///   dispatch                nothing of these
///
/// If several groups communicate, the one that is first in `names` has the instant. Ops end where
/// the next step begins. With `pipelined` (pp > 1), a wait for all ranks at the end of the
/// step is bubble too, since the rank waits for a stage whose turn comes later.
///
/// `names`: those of the ops' groups (Simulation::groups).
StepParts take_apart(std::span<const CriticalOp> critical, std::span<const std::string> names,
                     Seconds step_time, bool pipelined);

/// Returns the terms in seconds, with the communication over all groups together. They sum to
/// `step_time`.
Breakdown break_down(const StepParts& parts, Seconds step_time);

}  // namespace plimsoll
