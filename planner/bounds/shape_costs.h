// Shape costs: least costs of strategies, with the factor fitted for layers of their shape.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "planner/bounds/least_costs.h"
#include "predict/target.h"

namespace plimsoll {

/// The costs of the layers of one job. They are safe to share between threads.
class ShapeCosts {
 public:
  explicit ShapeCosts(const Target& target) : target_(target) {}

  /// Returns the least costs of the model that predicts this strategy (costs_of() in
  /// predict/target.h). They live as long as this object.
  const LeastCosts& of(const Strategy& strategy) const;

 private:
  struct Scaled {
    CostModel model;
    LeastCosts least;
    explicit Scaled(CostModel scaled) : model(std::move(scaled)), least(model) {}
  };
  const Target target_;
  mutable std::mutex mutex_;
  mutable std::map<double, std::unique_ptr<const Scaled>> by_factor_;
};

}  // namespace plimsoll
