// Host dispatch: how long a framework's host takes to issue each op of a routine.
#pragma once

#include <cstddef>
#include <vector>

#include "base/units.h"
#include "graph/program.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {

/// Returns the host time of each op of one of the Program's routines, at least 1 ps. It is the
/// framework's time for an op, times ops_per_kernel for a kernel of a block, and times
/// backward_dispatch in backward. Gathers of parameters in the middle of a step, and completed
/// gradients of parameters, cost extra. An op of experts is ops_per_expert_op ops, attention over a
/// part of a sequence is ops_per_part ops, and the begin of a step has the ops of the update. The
/// ops of a CUDA graph cost one op together, those of a whole step's graph nothing. A calibrated
/// time is the mean over all ops, to which nothing is added.
std::vector<Picoseconds> host_dispatch(const Program& program, const Routine& routine,
                                       const CostModel& costs);

/// Returns the host time of a transfer between stages: an op, but 1 ps in the graph of a step.
Picoseconds dispatch_of_transfer(const CostModel& costs);

/// Whether the op brings parameters, or parts of them, to ranks that share them out. These ranks
/// may lie along any axis: sharding, context, or both.
bool gathers_parameters(const Op& op);

/// Whether a framework may run several ops instead of this one. The op must belong to a block, and
/// be no communication, no cast of parameters and no merge of gradients.
bool is_kernel(const Routine& routine, const Op& op);

}  // namespace plimsoll
