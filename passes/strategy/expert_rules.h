// Which strategies can split a mixture of experts.
#pragma once

#include "base/error.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// Checks the rules of a job with experts; others keep them all.
/// - mp divides the widths of experts and shared experts; etp those of experts.
/// - etp x ep divides the ranks of mp, cp and sharding, or with one rank of sharding of mp, cp and
///   dp. ep divides the experts.
/// - Where experts have a grid of their own, mp above 1 needs sequence_parallel, and a capacity
///   with gathered tokens needs whole sequences.
/// - What is not built is refused: cp, products in 8 bits, and with a grid of their own sharding,
///   etp beside ep, other rank orders, LAMB, and optimizers that are not flat.
Verdict experts_are_legal(const Job& job, const Strategy& strategy);
/// Checks the rules of forwards and backwards that are issued in turns; a strategy without them
/// keeps them.
Verdict pairs_are_legal(const Strategy& strategy);

}  // namespace plimsoll
