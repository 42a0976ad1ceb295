// Sentences about how a plan splits its job.
#include "reports/plan_words.h"

#include <gtest/gtest.h>

#include "tests/plan/example_plan.h"

namespace plimsoll {
namespace {

TEST(PlanWords, SayWhichRanksShareWhat) {
  Plan plan = example_plan();
  plan.job.layers = 8;
  plan.strategy = Strategy();
  EXPECT_EQ(split_sentences(plan), "Nothing is split: one device does it all.");
  plan.strategy.pp = 2;
  plan.strategy.virtual_stages = 2;
  plan.strategy.mp = 4;
  plan.strategy.sharding_degree = 8;
  plan.strategy.sharding_stage = 1;
  EXPECT_EQ(split_sentences(plan),
            "The layers run in 2 pipeline stages (layers: 4 each) of 2 chunks each, every layer is "
            "split over 4 ranks, the batch is shared by 8 replicas, the optimizer state is sharded "
            "over 8.");
}

TEST(PlanWords, SayWhereExpertsAre) {
  Plan plan = example_plan();
  plan.strategy = Strategy();
  plan.job.experts.emplace();
  plan.job.experts->count = 64;
  EXPECT_TRUE(split_sentences(plan).ends_with(" A rank has 64 of a layer's 64 experts."));
  plan.strategy.sharding_degree = 16;
  plan.strategy.ep = 8;
  EXPECT_TRUE(split_sentences(plan).ends_with(" A rank has 8 of a layer's 64 experts."));
  plan.strategy.etp = 2;
  EXPECT_TRUE(split_sentences(plan).ends_with(
      " A rank has 8 of a layer's 64 experts, each split over 2 ranks."));
}

}  // namespace
}  // namespace plimsoll
