// Breakdown: divides the step of the critical rank into terms: compute, communication, bubble,
// host.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
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

/// A TimedPart is a part of a step that trainers or their profilers time.
enum class TimedPart : std::uint8_t {
  forward,        ///< as a timer reads that waits for the device; so do the next two
  backward,       ///< with what it recomputes
  optimizer,      ///< the update, with its norm and its gathers
  compute,        ///< the device runs kernels other than collectives
  communication,  ///< the device runs nothing else, and transfers between stages count
};
inline constexpr std::array<std::string_view, 5> kTimedParts = {"forward", "backward", "optimizer",
                                                                "compute", "communication"};
inline constexpr std::size_t kTimers = 3;  ///< the first of them

/// A step in whole picoseconds. The terms from `forward` to `dispatch`, and `wait` and `transfer`
/// of every group, sum exactly to `step`.
struct StepParts {
  Picoseconds step, forward, recompute, backward, optimizer, bubble, dispatch;
  std::vector<GroupTime> communication;  ///< in order of the groups' names
  /// By TimedPart. Every instant in which the rank does not wait for another stage, or for the sum
  /// of its gradients, is of the phase that computes, else of the phase that communicates, else of
  /// the next one to do either.
  std::array<Picoseconds, kTimers> timers = {};
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

/// Returns the compute of a step: forward, recompute, backward and optimizer.
Picoseconds compute_of(const StepParts& parts);
/// Returns the exposed communication of a step: waits and transfers of all groups.
Picoseconds exposed_of(const StepParts& parts);
/// Returns how long a part takes.
Seconds time_of(TimedPart part, const StepParts& parts);

/// Returns the terms in seconds, with the communication over all groups together. They sum to
/// `step_time`.
Breakdown break_down(const StepParts& parts, Seconds step_time);

}  // namespace plimsoll
