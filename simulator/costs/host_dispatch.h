// How long a host takes to issue each op of a routine, by what its framework has instead of it.
#pragma once

#include <cstddef>
#include <vector>

#include "base/units.h"
#include "graph/program.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {

/// By op: the framework's time for an op, ops_per_kernel times where it is a kernel of a block; for
/// communications, gathers of parameters in the middle of a step and completed gradients of
/// parameters, what these cost on top. Where a calibration measured the time for an op it is the
/// mean over all of them, and nothing comes on top. At least 1 ps each.
std::vector<Picoseconds> host_dispatch(const Routine& routine, const CostModel& costs);

/// Whether a framework may have several ops instead of this one: of a block, and neither a
/// communication, a cast of parameters nor a merge of gradients.
bool is_kernel(const Routine& routine, const Op& op);

}  // namespace plimsoll
