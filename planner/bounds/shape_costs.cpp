#include "planner/bounds/shape_costs.h"

#include "predict/evaluate.h"
#include "simulator/costs/layer_factors.h"

namespace plimsoll {

const LeastCosts& ShapeCosts::of(const Strategy& strategy) const {
  const auto& fitted = costs_.fitted();
  const double factor =
      fitted ? layer_factor(fitted->layers, layer_shape(job_, strategy)).factor : 1;
  const std::lock_guard lock(mutex_);
  std::unique_ptr<const Scaled>& known = by_factor_[factor];
  if (!known) {
    known = std::make_unique<const Scaled>(fitted ? costs_.with_layer_factor(factor) : costs_);
  }
  return known->least;
}

}  // namespace plimsoll
