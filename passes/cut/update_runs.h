// The once-per-step ops of a Graph are cut into runs.
#pragma once

#include <utility>
#include <vector>

#include "graph/graph.h"

namespace plimsoll {

/// An UpdateRun has either ops without a block, or ops with blocks, grouped by their parameter.
struct UpdateRun {
  std::vector<Op> whole;
  std::vector<std::pair<TensorId, std::vector<Op>>> of_tensors;
};

/// Returns whether an op comes before the first micro-batch: scalars of the step, zeroed gradients.
bool begins_step(const Graph& graph, const Op& op);

/// Returns the ops of the update in order. A run of ops with blocks ends where a parameter comes up
/// again after others. A run of ops without a block ends where copies to the host begin that have a
/// stream of their own. So all norms come before all scalings, and these before all updates.
/// Collectives over ranges of the arenas (streams data and mp) are left out, since they are calls
/// of the schedule.
std::vector<UpdateRun> update_runs(const Graph& graph);

}  // namespace plimsoll
