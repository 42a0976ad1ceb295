// The schedule makes one stage's Program from the routines, as a list of calls in host issue order.
#pragma once

#include "passes/cut/cut_blocks.h"
#include "passes/layout/arena_layout.h"
#include "passes/strategy/pass_context.h"

namespace plimsoll {

/// Executes the actions of pipeline_order, each over the instances of its chunk. stage_transfers.h
/// sends and frees boundary tensors. Gradient buckets are posted as soon as the last call that adds
/// to them is issued, or after backward. Parameters are gathered after the update, or at the start
/// of the next step (Framework::parallelism.overlap). Buffers have no offsets yet. Returns the
/// Programs of the stage's classes of ranks: one, or one for each owner of whole tensors.
std::vector<Program> schedule_stage(const Graph& graph, const CutGraph& cut,
                                    const PassContext& context, const StageLayout& stages,
                                    std::int64_t stage);

}  // namespace plimsoll
