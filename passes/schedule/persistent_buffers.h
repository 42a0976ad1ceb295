// Persistent buffers are memory that a stage's ranks keep from step to step.
#pragma once

#include <cstdint>

#include "passes/schedule/stage_context.h"
#include "passes/strategy/pass_context.h"

namespace plimsoll {

/// Adds parameters, masters, gradients, optimizer state, scalars and workspace to a Program that
/// has its segments and buckets. With release_gradients no gradients last. State of what the host
/// updates is in its memory. `resident` is the number of elements of parameters that stay whole in
/// sharding stage 3. Buffers have no padding that nothing reaches: where updates run tensor by
/// tensor, the padding behind the last tensor is left out.
StageArenas add_persistent_buffers(const Graph& graph, const PassContext& context,
                                   const ArenaLayout& layout, std::int64_t resident,
                                   ProgramBuilder& build);

}  // namespace plimsoll
