// Stages get costs even where their times are beyond the clock.
#include "planner/layers/stage_costs.h"

#include <gtest/gtest.h>

#include "planner/bounds/least_costs.h"
#include "simulator/simulate.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

TEST(StageCosts, TimesBeyondTheClockAreRefused) {
  const Target target = nano_target(2);
  const Strategy strategy = parse_strategy("pp=2");
  const Bounds bounds(target);
  const ShapeCosts shape_costs(target);
  const StageCosts stages(target, strategy, bounds.facts(strategy), shape_costs.of(strategy));
  const Picoseconds one = stages.time(0, 1, 0).work, three = stages.time(0, 3, 0).work;
  EXPECT_GT(three, one);
  const std::int64_t many = std::int64_t{1} << 62;  // a picosecond each is too much already
  EXPECT_THROW(stages.time(0, many, 0), InfeasibleError);
}

TEST(StageCosts, TheLeastOfAnyCutEndsWhereStepsDo) {
  const Job job = nano_job();
  const Strategy strategy = parse_strategy("pp=2");
  const Bounds bounds(nano_target(2));
  const auto facts = bounds.facts_without_transfers(strategy);
  const Picoseconds few = least_of_any_cut(job, *facts, 2, 16);
  EXPECT_GT(few, Picoseconds());
  EXPECT_LT(few, kLongestStep);
  EXPECT_EQ(least_of_any_cut(job, *facts, 2, std::int64_t{1} << 60), kLongestStep);
}

}  // namespace
}  // namespace plimsoll
