// Simplicity: which plan is simpler, and what a plan's ties are.
#include "plan/simplicity.h"

#include <gtest/gtest.h>

#include "tests/plan/example_plan.h"

namespace plimsoll {
namespace {

TEST(Simplicity, CountsDegreesThenChoicesThenParts) {
  const char* const from_simple[] = {
      "dp=16,micro_batch=4,grad_bucket_bytes=64MiB",  // sizes that every plan has are no choices
      "mp=16",
      "sharding_degree=16,sharding_stage=1",
      "dp=8,mp=2",
      "dp=4,mp=4",
      "dp=4,mp=4,sequence_parallel=true",
      "dp=4,pp=4,schedule=zb_h1,recompute=full",
      "dp=4,mp=2,pp=2",
      "dp=2,mp=2,pp=2,cp=2",
  };
  for (std::size_t i = 0; i + 1 < std::size(from_simple); ++i) {
    const Simplicity simple = simplicity_of(parse_strategy(from_simple[i]));
    EXPECT_LT(simple, simplicity_of(parse_strategy(from_simple[i + 1]))) << from_simple[i];
    EXPECT_EQ(simple, simple);
  }
}

RunnerUp runner_up(const char* strategy, double step, StepRatio ratio) {
  RunnerUp result = example_runner_up();
  result.strategy = parse_strategy(strategy);
  result.step_time = Seconds(step);
  result.ratio = ratio;
  return result;
}

TEST(Ties, AreThoseShownWhoseRatioMayBeOne) {
  Plan plan = example_plan();  // pp=2, dp=2
  Ties ties = ties_of(plan);
  EXPECT_EQ(ties.shown, 2u);
  EXPECT_EQ(ties.count, 0u);
  EXPECT_EQ(ties.simplest, &plan.strategy);
  plan.runners_up = {runner_up("dp=4", 0.0231, {1.0, 1.21}),
                     runner_up("mp=2,pp=2", 0.021, {0.8, 1.25}),
                     runner_up("mp=4", 0.03, {1.3, 1.5, false})};
  ties = ties_of(plan);
  EXPECT_EQ(ties.shown, 4u);
  EXPECT_EQ(ties.count, 2u);
  EXPECT_EQ(ties.simplest, &plan.runners_up[0].strategy);
  EXPECT_EQ(ties.simplest_step, Seconds(0.0231));
  EXPECT_EQ(ties.slowest_step, Seconds(0.0231));
  EXPECT_NEAR(ties.least_open, 0.1, 1e-12);
  EXPECT_NEAR(ties.most_open, 0.25, 1e-12);
  plan.pareto[1].strategy = parse_strategy("dp=4,micro_batch=2");  // as simple: the first counts
  plan.pareto[1].ratio = {0.7, 2.5, true};
  ties = ties_of(plan);
  EXPECT_EQ(ties.count, 3u);
  EXPECT_EQ(ties.simplest, &plan.runners_up[0].strategy);
  EXPECT_EQ(ties.slowest_step, plan.pareto[1].step_time);
  plan.pareto[1].strategy = Strategy{};
  EXPECT_EQ(ties_of(plan).simplest, &plan.pareto[1].strategy);
  plan.pareto[1].strategy = plan.runners_up[2].strategy;  // counted once
  EXPECT_EQ(ties_of(plan).shown, 3u);
}

TEST(Ties, TheChosenPlanIsTheSimplestUnlessAnotherIsSimpler) {
  Plan plan = example_plan();
  plan.runners_up = {runner_up("dp=2,pp=2,micro_batch=8", 0.0215, {0.9, 1.2})};
  EXPECT_EQ(simplicity_of(plan.strategy), simplicity_of(plan.runners_up[0].strategy));
  EXPECT_EQ(ties_of(plan).simplest, &plan.strategy);
}

}  // namespace
}  // namespace plimsoll
