// One model of costs for each factor that layers have.
#include "planner/bounds/shape_costs.h"

#include "simulator/costs/layer_factors.h"

namespace plimsoll {

const LeastCosts& ShapeCosts::of(const Strategy& strategy) const {
  const auto& fitted = target_.costs->fitted();
  const double factor =
      fitted ? layer_factor(fitted->layers, layer_shape(target_.job, strategy)).factor : 1;
  const std::lock_guard lock(mutex_);
  std::unique_ptr<const Scaled>& known = by_factor_[factor];
  if (!known) known = std::make_unique<const Scaled>(costs_of(target_, strategy));
  return known->least;
}

}  // namespace plimsoll
