// Sharding rules: what a sharding stage keeps as shards, and which communications overlap.
#pragma once

#include <cstdint>

#include "passes/strategy/pass_context.h"

namespace plimsoll {

/// Sharding stages 2 and 3 keep gradients as shards and reduce them in every micro-batch.
bool shards_gradients(const Strategy& strategy);
/// Stage 3 keeps parameters as shards and gathers them where they are used.
bool shards_parameters(const Strategy& strategy);
/// The number of elements up to which parameters stay whole; cut_blocks needs no more of the
/// strategy.
std::int64_t resident_limit(const Strategy& strategy);
/// Whether the strategy asks for it and the framework can do it.
bool overlaps_grad_reduce(const PassContext& context);
bool overlaps_param_gather(const PassContext& context);

}  // namespace plimsoll
