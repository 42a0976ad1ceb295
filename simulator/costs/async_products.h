// Async products: communications over mp that go on beside the matmuls that read or make their
// rows.
#pragma once

#include "graph/program.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {

/// Returns the time of a communication of this routine that no product hides. Alone, between
/// `ranks` ranks, the communication takes `whole`. With
/// Framework::parallelism.overlap.async_tensor_parallel a communication is cut into one part for
/// each rank. A gather over mp goes on beside the products that read its rows, and its first part
/// is there from the beginning. A scatter of forward goes on beside the product that makes its
/// rows, and its last part stays on the rank. The other parts are hidden as far as products last.
/// All other communications take `whole`. (torch/distributed/_symmetric_memory/__init__.py:
/// _pipelined_multi_all_gather_and_consume, _pipelined_produce_and_all2all.) `kind` is that of the
/// device that runs the products.
Estimate exposed_communication(const Routine& routine, std::size_t op, const Estimate& whole,
                               std::int64_t ranks, const CostModel& costs, std::size_t kind = 0);

}  // namespace plimsoll
