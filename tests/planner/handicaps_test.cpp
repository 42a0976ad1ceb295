// Handicaps: which unusual choices count in a search, and what a search recommends by them.
#include "planner/explore/handicaps.h"

#include <gtest/gtest.h>

#include "models/presets/presets.h"
#include "plan/memory_interval.h"
#include "planner/search/search.h"

namespace plimsoll {
namespace {

using Choices = std::vector<Unusual>;

/// A model of which a micro-batch of 3 is a little faster than one of 2 or 4.
SearchRequest request() {
  Job job = parse_job(*find_preset(job_presets(), "gpt3-1.3b"), "job");
  job.global_batch = 96;
  const Cluster cluster =
      parse_cluster(*find_preset(cluster_presets(), "dgx-a100-80gb"), "cluster");
  SearchRequest request{
      Target(job, CostModel(cluster, std::nullopt, framework_by_name("megatron-lm")), 8)};
  request.constraints.fixed = {{"mp", "1"}, {"pp", "1"}, {"cp", "1"}, {"recompute", "none"}};
  request.inputs.cluster_digest = std::string(64, '0');
  return request;
}

TEST(Handicaps, AChoiceThatTheUserMadeDoesNotCount) {
  SearchRequest asked = request();
  const Strategy odd = parse_strategy("micro_batch=3,dp=8");
  EXPECT_EQ(Handicaps(asked).of(odd, Bytes()), Choices{UnusualChoice::odd_micro_batch});
  asked.constraints.fixed.emplace_back("micro_batch", "3");
  EXPECT_EQ(Handicaps(asked).of(odd, Bytes()), Choices{});
  asked = request();
  asked.fastest = true;
  EXPECT_EQ(Handicaps(asked).of(odd, Bytes()), Choices{});
}

TEST(Handicaps, LiveBytesThatHardlyFitAreTight) {
  const SearchRequest asked = request();
  const Strategy strategy = parse_strategy("dp=8");
  const Bytes memory = asked.target.cluster().device.memory;
  EXPECT_EQ(Handicaps(asked).of(strategy, Bytes(memory.count() / 2)), Choices{});
  EXPECT_EQ(Handicaps(asked).of(strategy, memory), Choices{tight_memory(0.5)});
  Candidate candidate;
  candidate.strategy = strategy;
  StagePrediction stage;
  stage.capacity = memory;
  stage.peak = stage.allocated = Bytes(memory.count() / 2);
  stage.reserved = memory - outside_program(asked.target, strategy) - Bytes(1 << 30);
  candidate.prediction.stages = {stage};
  Handicaps(asked).weigh(candidate);
  EXPECT_EQ(candidate.unusual, Choices{});  // until the allocator is replayed
  candidate.replayed = true;
  Handicaps(asked).weigh(candidate);
  ASSERT_EQ(candidate.unusual.size(), 1);
  EXPECT_EQ(candidate.unusual[0].choice, UnusualChoice::tight_memory);
  EXPECT_GT(candidate.unusual[0].gain, 0.1);
  EXPECT_LT(candidate.unusual[0].gain, 1);
}

TEST(Handicaps, TheRecommendedPlanIsUsualAndTheFastestIsNamed) {
  SearchRequest asked = request();
  const Plan plan = search(asked);
  ASSERT_TRUE(plan.fastest);
  EXPECT_EQ(plan.unusual, Choices{});
  EXPECT_LT(plan.fastest->step_time, plan.prediction.step_time);
  EXPECT_FALSE(plan.fastest->unusual.empty());
  EXPECT_LT(plan.prediction.step_time, merit(plan.fastest->step_time, plan.fastest->unusual));
  asked.fastest = true;
  const Plan fastest = search(asked);
  EXPECT_EQ(fastest.strategy, plan.fastest->strategy);
  EXPECT_FALSE(fastest.fastest);
  asked.fastest = false;  // holding its choices makes them usual
  asked.constraints.fixed.emplace_back("micro_batch", std::to_string(fastest.strategy.micro_batch));
  EXPECT_EQ(search(asked).strategy.micro_batch, fastest.strategy.micro_batch);
}

}  // namespace
}  // namespace plimsoll
