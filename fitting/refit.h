// Refit: a calibration corrected by a run of the bundled runtime that it predicted.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "models/calibration/calibration.h"
#include "models/calibration/fitted_calibration.h"
#include "plan/measured.h"
#include "plan/plan.h"
#include "predict/cost_basis.h"

namespace plimsoll {

/// One kind of op or communication: a factor on its curves.
struct RefitTerm {
  /// `name` of the kind ("matmul", "all_reduce"; recv is "send"); `value` the factor, prior 1.
  FittedValue factor;
  std::size_t places = 0;       ///< ops of routines that were compared
  Seconds predicted, measured;  ///< of the traced step, mean over ranks; before the refit
  bool moved = false;           ///< the 90 % interval leaves out 1
  /// The 90 % interval is within 10 % of the factor: within this run, whose ops count as
  /// independent. What moves all ops of a kind in one run, as a warm device does, is not in it.
  bool trusted = false;
};

struct Refit {
  Calibration calibration;
  std::vector<RefitTerm> terms;     ///< those that ran, in order of OpKind
  Seconds before, after, measured;  ///< step time: predicted by the old and the new one; median
};

/// Takes each op of each routine as one measurement: the median of its durations in the traced
/// step, over ranks, layers and micro-batches, against that of the simulated ones. Each kind has
/// one factor, found by the robust fit (robust_fit.h) from the ops of 2 us or more: shorter ones
/// would be charged for the trace. Priors say that a curve is off by 30 % (standard deviation of
/// the logarithm); a kind that the run does not narrow by a tenth of that stays. Host time between
/// ops is no term: a traced step does not tell it from the trace.
///
/// The basis is that which the plan was made with; something was measured in it. `versions` of the
/// new one says what was moved.
Refit refit(const Plan& plan, const Measured& measured, const CostBasis& basis);

std::string refit_text(const Refit& refit);
/// `comparison` (planner compare --json) with the key `refit` (docs/reference/comparison.md).
std::string refit_json(const std::string& comparison, const Refit& refit,
                       const std::string& output);

}  // namespace plimsoll
