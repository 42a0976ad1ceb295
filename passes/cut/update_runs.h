// The once-per-step ops of a Graph, cut into runs.
#pragma once

#include <utility>
#include <vector>

#include "graph/graph.h"

namespace plimsoll {

/// Ops without a block, or ops with blocks by the parameter they belong to.
struct UpdateRun {
  std::vector<Op> whole;
  std::vector<std::pair<TensorId, std::vector<Op>>> of_tensors;
};

/// Whether an op comes before the first micro-batch: scalars of the step, zeroed gradients.
bool begins_step(const Graph& graph, const Op& op);

/// The ops of the update in order. A run of ops with blocks ends where a parameter comes up again
/// after others: so all norms come before all scalings and these before all updates. Collectives
/// over ranges of the arenas (streams data and mp) are calls of the schedule and left out.
std::vector<UpdateRun> update_runs(const Graph& graph);

}  // namespace plimsoll
