// A refit corrects a calibration by a run of the bundled runtime that it predicted.
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

/// A RefitTerm is the factor on the curves of one kind of op or communication.
struct RefitTerm {
  /// The name of the kind ("matmul", "all_reduce"; recv counts as "send") and its factor, with
  /// prior 1.
  FittedValue factor;
  std::size_t places = 0;       ///< number of ops of routines that were compared
  Seconds predicted, measured;  ///< time in the traced step, mean over ranks, before the refit
  bool moved = false;           ///< whether the 90 % interval leaves out 1
  /// Whether the 90 % interval is within 10 % of the factor. The interval is that of this run,
  /// whose ops count as independent. It leaves out effects on all ops of a kind in one run, such as
  /// a warm device.
  bool trusted = false;
};

struct Refit {
  Calibration calibration;
  std::vector<RefitTerm> terms;  ///< the kinds that ran, in order of OpKind
  /// step time: predicted by the old and by the new calibration; measured median
  Seconds before, after, measured;
  /// The plan's job, with the load of its experts that was measured. The fit and `after` are for
  /// this load.
  Job job;
};

/// Takes each op of each routine as one measurement: the median of its durations in the traced
/// step, over ranks, layers and micro-batches, relative to the simulated median. Each kind has one
/// factor, which the robust fit (robust_fit.h) finds from the ops of 2 us or more, since tracing
/// distorts shorter ones. The priors say that a curve is off by 30 % (standard deviation of the
/// logarithm). A kind keeps its curve where the run does not narrow this by a tenth. Host time
/// between ops has no term, since a traced step does not separate it from the cost of tracing.
///
/// Where the run measured how rows were shared out among experts, the fit is for that load, so that
/// curves are not charged for it.
///
/// `basis` is the one with which the plan was made; it must hold measurements. `versions` of the
/// new calibration says which factors changed it.
Refit refit(const Plan& plan, const Measured& measured, const CostBasis& basis);

/// Returns the job with the load of its experts that a run measured, if it did.
Job with_measured_load(Job job, const Measured& measured);

std::string refit_text(const Refit& refit);
/// Returns `comparison` (planner compare --json) with the key `refit`
/// (docs/reference/other-results.md).
std::string refit_json(const std::string& comparison, const Refit& refit,
                       const std::string& output);

}  // namespace plimsoll
