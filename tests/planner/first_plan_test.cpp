// First plan: close to the best, long before the space is searched.
#include "planner/explore/first_plan.h"

#include <gtest/gtest.h>

#include "planner/explore/assess.h"
#include "planner/search/search.h"

namespace plimsoll {
namespace {

std::optional<Candidate> first_of(const Target& target, const std::function<bool()>& passed) {
  const Space space =
      enumerate(target.job, target.framework(), target.devices, {}, units_of(target.cluster()));
  const Bounds bounds(target);
  const FamilyBounds families(target, bounds);
  return first_plan({target, space.legal, bounds, families, passed, 1});
}

Target target_for(const char* job, std::int64_t devices) {
  const CostModel costs(read_cluster("dgx-a100-80gb"), {}, framework_by_name("megatron-lm"));
  return Target(read_job(job), costs, devices);
}

TEST(FirstPlan, TakesAtMostHalfAgainAsLongAsTheBest) {
  const Target target = target_for("gpt2-xl", 16);
  const auto first = first_of(target, [] { return false; });
  ASSERT_TRUE(first);
  SearchRequest request{target};
  request.threads = 1;
  const Plan best = search(request);
  EXPECT_LT(first->prediction.step_time / best.prediction.step_time, 1.5);
}

TEST(FirstPlan, IsTheLeanestWhereThereIsTimeForNoOther) {
  const Target target = target_for("gpt3-175b", 1024);
  int asked = 0;
  const auto lean = first_of(target, [&] { return asked++ > 8; });
  const auto usual = first_of(target, [] { return false; });
  ASSERT_TRUE(lean && usual);
  EXPECT_LT(usual->prediction.step_time, lean->prediction.step_time * 0.7);
  EXPECT_EQ(lean->strategy.recompute, Recompute::full);
}

/// DGX H100 whose network is 32 times as slow.
Cluster slow_network() {
  Cluster cluster = read_cluster("dgx-h100-80gb");
  cluster.levels.back().bandwidth = cluster.levels.back().bandwidth / 32;
  return cluster;
}

TEST(FirstPlan, SharesTheModelOutWhereTheNetworkIsSlow) {
  const CostModel costs(slow_network(), {}, framework_by_name("megatron-lm"));
  Job job = read_job("llama3-70b");
  job.global_batch = 1024;
  const Target target(job, costs, 512);
  const auto first = first_of(target, [] { return false; });
  ASSERT_TRUE(first);
  // Gradients of a replica of 8 ranks alone take as long.
  const Strategy& strategy = first->strategy;
  EXPECT_GE(strategy.mp * strategy.pp, 32) << strategy_summary(strategy);
  EXPECT_LE(strategy.pipeline.virtual_stages, 4) << strategy_summary(strategy);
  const Candidate by_hand =
      assess(target,
             parse_strategy(
                 "mp=4,pp=8,sharding_degree=16,sharding_stage=1,virtual_stages=2,recompute=full,"
                 "recompute_layers=1,sequence_parallel=true"),
             0);
  EXPECT_LE(first->prediction.step_time, 1.02 * by_hand.prediction.step_time)
      << strategy_summary(strategy);
}

TEST(FirstPlan, FollowsTheTransfersWhereTheyTakeMostOfTheStep) {
  Cluster cluster = slow_network();
  cluster.levels.back().bandwidth = cluster.levels.back().bandwidth / 12;
  const CostModel costs(cluster, {}, framework_by_name("megatron-lm"));
  const Target target(read_job("qwen3-32b"), costs, 512);
  const auto first = first_of(target, [] { return false; });
  ASSERT_TRUE(first);
  const Candidate by_hand = assess(
      target,
      parse_strategy("mp=8,pp=16,sharding_degree=4,sharding_stage=1,sequence_parallel=true"), 0);
  ASSERT_TRUE(feasible(by_hand));
  EXPECT_LE(first->prediction.step_time, 1.02 * by_hand.prediction.step_time)
      << strategy_summary(first->strategy);
}

/// Two nodes of 8 H100 and two of 8 A100.
Cluster mixed() {
  const Cluster other = read_cluster("dgx-a100-80gb");
  Cluster cluster = read_cluster("dgx-h100-80gb");
  cluster.nodes = 4;
  OtherDevices slower{2, 2, other.device, other.efficiency};
  slower.efficiency->levels.clear();
  cluster.other_devices = {slower};
  return cluster;
}

TEST(FirstPlan, CutsLayersByTheRatesOfEachStagesDevices) {
  const CostModel costs(mixed(), {}, framework_by_name("megatron-lm"));
  Job job = read_job("llama2-13b");
  job.global_batch = 256;
  const Target target(job, costs, 32);
  const auto first = first_of(target, [] { return false; });
  ASSERT_TRUE(first);
  const std::vector<std::int64_t>& split = first->strategy.pipeline.layer_split;
  ASSERT_EQ(split.size(), std::size_t(first->strategy.pp)) << strategy_summary(first->strategy);
  EXPECT_GE(split.front(), 2 * split.back());
  const Candidate by_hand = assess(
      target, parse_strategy("pp=4,sharding_degree=8,sharding_stage=1,layer_split=15+15+5+5"), 0);
  ASSERT_TRUE(feasible(by_hand));
  EXPECT_LE(first->prediction.step_time, 1.02 * by_hand.prediction.step_time);
}

}  // namespace
}  // namespace plimsoll
