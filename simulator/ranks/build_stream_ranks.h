// Builds the stream ranks of a step: lays the calls of the chosen ranks out in a StreamEngine.
#pragma once

#include <span>

#include "simulator/ranks/stream_ranks.h"

namespace plimsoll {

/// A call that no other class of ranks enters becomes one map of its whole routine; the other
/// calls, and all calls of the ranks `by_op`, are laid out op by op. `expansions` are those of all
/// Programs of a job, and must outlive the result. `skipped`, by expansion: the calls that are not
/// simulated (shortened_step.h).
StreamRanks build_stream_ranks(std::span<const Expansion> expansions, const RankTopology& topology,
                               const RankChoice& choice, std::span<const SkippedCalls> skipped = {},
                               std::span<const std::int64_t> by_op = {});

}  // namespace plimsoll
