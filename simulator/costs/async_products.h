// Async products: communications over mp that go on beside the products that they feed or empty.
#pragma once

#include "graph/program.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {

/// The rest of a communication of this routine that took `whole` alone, between `ranks` ranks. With
/// Framework::async_tensor_parallel a gather over mp goes on in as many parts as there are ranks
/// beside the products that read its rows, of which the first part is there from the beginning; a
/// scatter of forward beside the product that gives its rows, of which the last part stays. What
/// remains is what the others, so many parts of the rows each, do not cover; in all else `whole`.
/// (torch/distributed/_symmetric_memory/__init__.py: _pipelined_multi_all_gather_and_consume,
/// _pipelined_produce_and_all2all.) `kind`: of the device that runs the products.
Estimate beside_products(const Routine& routine, std::size_t op, const Estimate& whole,
                         std::int64_t ranks, const CostModel& costs, std::size_t kind = 0);

}  // namespace plimsoll
