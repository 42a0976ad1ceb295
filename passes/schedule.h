// The schedule: one stage's Program from the routines, as a list of calls in host issue order.
#pragma once

#include "passes/arena_layout.h"
#include "passes/cut_blocks.h"
#include "passes/pipeline.h"

namespace plimsoll {

/// 1F1B (Narayanan et al. 2021, PipeDream-Flush): min(m, P-s-1) warm-up forwards, then pairs of one
/// forward and one backward, then the remaining backwards. Gradient buckets are posted as soon as
/// the last micro-batch's backward has completed them, or after it; parameters are gathered after
/// the update, or at the start of the next step (Framework::overlap_*). Buffers have no offsets
/// yet.
Program schedule_stage(const Graph& graph, const CutGraph& cut, const PassContext& context,
                       std::int64_t stage, std::int64_t alignment);

}  // namespace plimsoll
