// Shape costs: least costs of strategies, with the factor fitted for layers of their shape.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "models/job/job.h"
#include "passes/strategy/strategy.h"
#include "planner/bounds/least_costs.h"

namespace plimsoll {

/// Of one job. Safe to share between threads.
class ShapeCosts {
 public:
  ShapeCosts(const Job& job, const CostModel& costs) : job_(job), costs_(costs) {}

  /// Those of the model that predicts this strategy (evaluate.h: layer_shape). They stay as long as
  /// this.
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
