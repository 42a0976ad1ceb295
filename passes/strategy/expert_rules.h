// Which strategies can split a mixture of experts.
#pragma once

#include "base/error.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// Checks the rules of a job with experts; others keep them all.
/// - mp divides the widths of experts and shared experts.
/// - cp is 1, and products are not in 8 bits.
Verdict experts_are_legal(const Job& job, const Strategy& strategy);

}  // namespace plimsoll
