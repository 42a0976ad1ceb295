// Shape costs: least costs of strategies, with the factor fitted for layers of their shape.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "models/job/job.h"
#include "passes/strategy/strategy.h"
#include "planner/bounds/least_costs.h"

namespace plimsoll {

/// The costs of the layers of one job. They are safe to share between threads.
class ShapeCosts {
 public:
  ShapeCosts(const Job& job, const CostModel& costs) : job_(job), costs_(costs) {}

  /// The costs of the model that predicts this strategy (evaluate.h: layer_shape). They live as
  /// long as this object.
  const LeastCosts& of(const Strategy& strategy) const;

 private:
  struct Scaled {
    CostModel model;
    LeastCosts least;
    explicit Scaled(CostModel scaled) : model(std::move(scaled)), least(model) {}
  };
  const Job& job_;
  const CostModel& costs_;
  mutable std::mutex mutex_;
  mutable std::map<double, std::unique_ptr<const Scaled>> by_factor_;
};

}  // namespace plimsoll
