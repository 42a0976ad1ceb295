// Plan difference: says how sure it is that one plan is faster than another. Errors that both plans
// share cancel.
#pragma once

#include "models/calibration/fitted_calibration.h"
#include "plan/plan.h"
#include "predict/step_interval.h"
#include "predict/target.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {

/// A predicted step of one job on one cluster with one calibration.
struct PlanTime {
  Seconds step_time;
  Breakdown breakdown;
  LayerShape shape;                      ///< layer_shape(job, strategy)
  TimeBasis basis = TimeBasis::kernels;  ///< what the step time rests on
  /// The half width of the step's interval, a logarithm; not where its ops were measured.
  std::optional<double> open = std::nullopt;
};
PlanTime plan_time(const Target& target, const Strategy& strategy, Seconds step_time,
                   const Breakdown& breakdown);

/// Says what the interval of a step rests on: "runs of this model that its fit had left out".
std::string interval_basis(const Target& target, const Strategy& strategy);

/// Returns the half width of the 90 % interval of the logarithm of a.step_time / b.step_time. It is
/// the root of the sum of squares of three parts, whose numbers are difference_spread()'s:
///
///   - the difference between any two runs of one source;
///   - the part that layers of another shape add;
///   - a number times the distance between the shares of recompute, optimizer, exposed
///     communication, bubble and host (root of the sum of squares).
///
/// The result is 0 for two steps that are the same in all of these.
double difference_half_width(TimeBasis basis, const PlanTime& a, const PlanTime& b);

/// Returns the half width, no wider than if the errors of both steps were independent.
double half_width_between(const PlanTime& a, const PlanTime& b);

/// Returns the interval of a.step_time / b.step_time, which have one basis, by
/// half_width_between(). On CPU cores whose ops were measured, both steps use the same
/// measurements, so that only the error beside them (kBesideOps) counts, once for each step.
StepRatio step_ratio(const CostModel& costs, const PlanTime& a, const PlanTime& b);

}  // namespace plimsoll
