// Which strategies can split a mixture of experts.
#pragma once

#include "base/error.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// Checks the rules of a job with experts; others keep them all.
/// - mp divides the widths of experts and shared experts; etp those of experts.
/// - etp x ep divides the ranks of mp, cp, sharding and dp. ep divides the experts.
/// - Where experts have a grid of their own, mp above 1 needs sequence_parallel.
/// - expert_rows_percent is 0 or at least 100.
/// - What is not built with such a grid is refused: owners of whole tensors, other rank orders,
///   reductions in each micro-batch, LAMB, optimizers that are not flat, and etp with biases.
/// - Shared experts overlap where there are some and tokens travel, and pairs_are_legal().
Verdict experts_are_legal(const Job& job, const Strategy& strategy);
/// Checks the rules of forwards and backwards that are issued in turns; a strategy without them
/// keeps them.
Verdict pairs_are_legal(const Strategy& strategy);

}  // namespace plimsoll
