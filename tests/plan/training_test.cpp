// Trainings: days, device-hours and cost, as plans keep them.
#include "plan/training/training.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "plan/training/training_json.h"
#include "tests/plan/example_plan.h"

namespace plimsoll {
namespace {

Plan trained_plan() {
  Plan plan = example_plan();
  plan.training = training_of(training_step(plan), {1e9, 2.5});
  return plan;
}

TEST(Training, IsStepsTimesTheStepOfThePlan) {
  const Plan plan = trained_plan();
  const auto per_step = double(plan.job.global_batch * plan.job.sequence);
  const double steps = std::ceil(1e9 / per_step);
  EXPECT_EQ(double(plan.training->steps), steps);
  EXPECT_DOUBLE_EQ(plan.training->days.value, steps * plan.prediction.step_time.value() / 86400);
  EXPECT_DOUBLE_EQ(plan.training->device_hours.high,
                   steps * plan.prediction.step_time_high.value() / 3600 * double(plan.devices));
  EXPECT_DOUBLE_EQ(plan.training->cost->low, 2.5 * plan.training->device_hours.low);
}

TEST(Training, PlansReadItBack) {
  const Plan plan = trained_plan();
  const std::string text = plan_text(plan);
  const Plan read = parse_plan(text, "plan");
  EXPECT_EQ(read.training, plan.training);
  EXPECT_EQ(plan_text(read), text);
  EXPECT_FALSE(parse_plan(plan_text(example_plan()), "plan").training);
}

TEST(Training, PlansRefuseNumbersThatDoNotFollow) {
  Json json = Json::parse(plan_text(trained_plan()));
  json["training"]["days"] = 1.0;
  try {
    parse_plan(json.dump(), "plan");
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_EQ(error.pointer(), "/training/days");
  }
}

}  // namespace
}  // namespace plimsoll
