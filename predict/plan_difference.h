// Plan difference: how sure one plan is faster than another. What both share is off for both.
#pragma once

#include "models/calibration/fitted_calibration.h"
#include "plan/plan.h"
#include "predict/step_interval.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {

/// A predicted step of one job on one cluster with one calibration.
struct PlanTime {
  Seconds step_time;
  Breakdown breakdown;
  LayerShape shape;  ///< layer_shape(job, strategy)
};

/// Half width of the 90 % interval of the logarithm of a.step_time / b.step_time: root of the sum
/// of squares of what any two runs of one source differ by, of what layers of another shape add,
/// and of a number times how far the shares of recompute, optimizer, exposed communication, bubble
/// and host are apart (root of the sum of squares). The numbers are difference_spread()'s.
///
/// 0 for two steps that are the same in all of these: then nothing is known to tell them apart.
double difference_half_width(TimeBasis basis, const PlanTime& a, const PlanTime& b);

/// The interval of a.step_time / b.step_time by what `costs` rest on. On CPU cores whose ops were
/// measured, both steps use the same measurements; what each is off beside them (kBesideOps) is its
/// own.
StepRatio step_ratio(const CostModel& costs, const PlanTime& a, const PlanTime& b);

}  // namespace plimsoll
