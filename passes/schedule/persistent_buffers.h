// Buffers that a stage's ranks keep from step to step.
#pragma once

#include <cstdint>

#include "passes/cut/program_builder.h"
#include "passes/layout/arena_layout.h"
#include "passes/schedule/step_collectives.h"
#include "passes/strategy/pass_context.h"

namespace plimsoll {

/// Adds parameters, masters, gradients, optimizer state, scalars and workspace to a Program that
/// has its segments and buckets. `resident`: elements of parameters that stay whole in sharding
/// stage 3. No buffer holds padding that nothing reaches: tensor by tensor, updates leave out what
/// lies behind the last tensor.
StageArenas add_persistent_buffers(const Graph& graph, const PassContext& context,
                                   const ArenaLayout& layout, std::int64_t resident,
                                   ProgramBuilder& build);

}  // namespace plimsoll
