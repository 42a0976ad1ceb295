// What a stage's ranks keep from step to step.
#pragma once

#include <cstdint>

#include "passes/arena_layout.h"
#include "passes/pipeline.h"
#include "passes/program_builder.h"
#include "passes/step_collectives.h"

namespace plimsoll {

/// Adds parameters, masters, gradients, optimizer state, scalars and workspace to a Program that
/// has its segments and buckets. `resident`: elements of parameters that stay whole in sharding
/// stage 3. No buffer holds padding that nothing reaches: tensor by tensor, updates leave out what
/// lies behind the last tensor.
StageArenas add_persistent_buffers(const Graph& graph, const PassContext& context,
                                   const ArenaLayout& layout, std::int64_t resident,
                                   ProgramBuilder& build);

}  // namespace plimsoll
