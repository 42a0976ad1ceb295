// Training on many ranks against training on one.
#pragma once

#include <string>

#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// Trains a job for three steps on one rank, with the whole batch at once if its losses allow it,
/// and by a strategy with so many micro-batches. Expects the same losses, gradient norms and
/// gradients up to rounding, and the predicted bytes.
void expect_model_of_one_rank(const Job& job, const std::string& strategy,
                              std::int64_t micro_batches = 2,
                              Recompute recompute = Recompute::none);

/// Trains a job without an arena of its optimizer for four steps, on one rank and by a strategy.
/// Expects the same losses within `tolerance`, parameters that differ by little more, and the
/// predicted bytes.
void expect_parameters_of_one_rank(const Job& job, const std::string& strategy, double tolerance);

}  // namespace plimsoll
