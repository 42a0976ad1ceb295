// Reckons what a training costs.
#include "plan/training/training.h"

#include <cmath>

namespace plimsoll {
namespace {

Amount scaled(const Amount& amount, double factor) {
  return {factor * amount.value, factor * amount.low, factor * amount.high};
}

}  // namespace

Training training_of(const TrainingStep& step, const TrainingGoal& goal) {
  Training training;
  training.tokens = goal.tokens;
  training.price = goal.price;
  training.steps = std::int64_t(std::ceil(goal.tokens / double(step.tokens)));
  const Amount time = {step.time.value(), step.low.value(), step.high.value()};
  training.days = scaled(time, double(training.steps) / 86400);
  training.device_hours = scaled(training.days, 24 * double(step.devices));
  if (goal.price) training.cost = scaled(training.device_hours, *goal.price);
  return training;
}

}  // namespace plimsoll
