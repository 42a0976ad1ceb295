// Compares two steps by the shares of their parts.
#include "predict/plan_difference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace plimsoll {
namespace {

/// The parts of a step that are compared. Forward and backward are the rest.
constexpr std::array kParts = {&Breakdown::recompute, &Breakdown::optimizer,
                               &Breakdown::exposed_communication, &Breakdown::bubble,
                               &Breakdown::dispatch};

bool same(const PlanTime& a, const PlanTime& b) {
  if (a.step_time != b.step_time || a.shape != b.shape) return false;
  return std::all_of(kParts.begin(), kParts.end(),
                     [&](auto part) { return a.breakdown.*part == b.breakdown.*part; });
}

}  // namespace

double difference_half_width(TimeBasis basis, const PlanTime& a, const PlanTime& b) {
  if (same(a, b)) return 0;
  const DifferenceSpread& spread = difference_spread(basis);
  double square = spread.any * spread.any;
  if (a.shape != b.shape) square += spread.other_shapes * spread.other_shapes;
  for (const auto part : kParts) {
    const double apart = a.breakdown.*part / a.step_time - b.breakdown.*part / b.step_time;
    square += spread.of_shares * apart * spread.of_shares * apart;
  }
  return std::sqrt(square);
}

PlanTime plan_time(const Target& target, const Strategy& strategy, Seconds step_time,
                   const Breakdown& breakdown) {
  const CostModel& costs = *target.costs;
  PlanTime time{step_time, breakdown, layer_shape(target.job, strategy),
                basis_of(costs.fitted(), model_size(target.job))};
  if (!costs.host_executes())
    time.open =
        training_interval(costs, target.job, {time.shape, target.devices, step_time, breakdown}, 0)
            .logarithm();
  return time;
}

std::string interval_basis(const Target& target, const Strategy& strategy) {
  const CostModel& costs = *target.costs;
  if (costs.host_executes()) return "what the costs of its ops leave open";
  if (costs.fitted() && costs.fitted()->learned) return "what the learned runs leave open";
  if (own_half_width(costs, target.job, layer_shape(target.job, strategy), target.devices))
    return "runs of this model that its fit had left out";
  if (basis_of(costs.fitted(), model_size(target.job)) == TimeBasis::fit_of_model)
    return "other people's runs of models about as large as their fits' runs";
  return "published runs of sources that its calibration had not seen";
}

double half_width_between(const PlanTime& a, const PlanTime& b) {
  const double half = difference_half_width(a.basis, a, b);
  return a.open && b.open ? std::min(half, std::hypot(*a.open, *b.open)) : half;
}

StepRatio step_ratio(const CostModel& costs, const PlanTime& a, const PlanTime& b) {
  const bool measured = costs.host_executes() && costs.dispatch_is_measured();
  const double half =
      measured && !same(a, b) ? std::numbers::sqrt2 * kBesideOps : half_width_between(a, b);
  const double ratio = a.step_time / b.step_time;
  const StepInterval interval = around(half);
  StepRatio found{ratio * interval.low, ratio * interval.high};
  found.tied = found.low <= 1 && 1 <= found.high;
  return found;
}

}  // namespace plimsoll
