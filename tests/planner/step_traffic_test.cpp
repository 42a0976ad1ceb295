// Step traffic: bounds of steps whose gradients and parameters cross slow links.
#include "planner/bounds/step_traffic.h"

#include <gtest/gtest.h>

#include <string>

#include "models/cluster/cluster.h"
#include "planner/bounds/bounds.h"
#include "planner/explore/family_bounds.h"
#include "predict/evaluate.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

/// A job on 4 nodes of 8 H100 whose network is a hundredth of a DGX's.
Target slow_network(std::int64_t layers, const std::string& name = "llama3-8b") {
  Job job = read_job(name);
  job.layers = layers;
  job.global_batch = 64;
  Cluster cluster = preset_cluster("dgx-h100-80gb");
  cluster.nodes = 4;
  cluster.levels.back().bandwidth = BytesPerSecond(0.5e9);
  return {job, CostModel(cluster, std::nullopt, framework_by_name("megatron-lm")), 32};
}

Seconds step_of(const Target& target, const Strategy& strategy) {
  return evaluate(target, strategy).prediction.step_time;
}

/// Holds both bounds against the step. Returns the one of the pipeline as a share of the step.
double check_bounds(const Target& target, const Bounds& bounds, const Strategy& strategy,
                    const std::string& text) {
  const double step = step_of(target, strategy).value();
  const double low = bounds.bottleneck(strategy).seconds().value(),
               sharp = bounds.actions(strategy).seconds().value();
  EXPECT_LE(low, step) << text;
  EXPECT_LE(sharp, step * 1.0005) << text;
  EXPECT_GT(low, 0.85 * step) << text;
  return sharp / step;
}

TEST(StepTraffic, MostOfAStepOnASlowNetworkIsBounded) {
  const Target target = slow_network(16);
  const Bounds bounds(target);
  for (const std::string text :
       {"mp=8,sharding_degree=4,sharding_stage=1", "mp=8,dp=4,micro_batch=2",
        "mp=8,dp=2,sharding_degree=2,sharding_stage=1",
        "mp=4,pp=2,sharding_degree=4,sharding_stage=1", "mp=4,pp=2,virtual_stages=4,dp=4",
        "mp=2,pp=4,cp=2,virtual_stages=2,sharding_degree=2,sharding_stage=1"}) {
    const Strategy strategy = parse_strategy(text);
    const double sharp = check_bounds(target, bounds, strategy, text);
    // The order of actions shares no links.
    EXPECT_GT(sharp, strategy.pp == 1 ? 0.9 : 0.55) << text;
  }
}

TEST(StepTraffic, TransfersOfManyChunksAreBounded) {
  const Target target = slow_network(32);
  const Bounds bounds(target);
  const Strategy strategy = parse_strategy("mp=8,pp=4,virtual_stages=8");
  const double step = step_of(target, strategy).value();
  // Activations and gradients leave a stage by the same links.
  const double low = bounds.bottleneck(strategy).seconds().value();
  EXPECT_LE(low, step);
  EXPECT_GT(low, 0.75 * step);
}

TEST(StepTraffic, OfExpertsIsBounded) {
  const Target target = slow_network(8, "mixtral-8x7b");
  const Bounds bounds(target);
  for (const std::string text :
       {"ep=8,sharding_degree=32,sharding_stage=1", "ep=8,dp=32", "ep=4,dp=8,sharding_degree=4",
        "ep=8,dp=4,sharding_degree=8,sharding_stage=1", "ep=2,pp=2,cp=2,dp=8",
        "ep=4,pp=2,sharding_degree=16,sharding_stage=1",
        "ep=2,etp=2,mp=2,sequence_parallel=true,pp=4,dp=4",
        "ep=4,pp=2,virtual_stages=2,sharding_degree=16,sharding_stage=1,"
        "overlap_expert_exchange=true"}) {
    check_bounds(target, bounds, parse_strategy(text), text);
  }
}

// Two ranks with the same experts are found over more ranks that share sequences than there are,
// and than there are heads of keys.
TEST(StepTraffic, OfExpertsIsBoundedWhateverDividesTheirRanks) {
  Target target = slow_network(4, "qwen1.5-moe-a2.7b");
  target.devices = 24;
  target.job.global_batch = 48;
  target.job.kv_heads = 4;
  const Bounds bounds(target);
  for (const std::string text : {"ep=3,cp=2,dp=12", "ep=3,cp=2,dp=12,context_exchange=all_to_all",
                                 "ep=3,cp=4,dp=6,context_exchange=all_gather"}) {
    const Strategy strategy = parse_strategy(text);
    const double step = step_of(target, strategy).value();
    const double low = bounds.bottleneck(strategy).seconds().value();
    EXPECT_LE(low, step) << text;
    EXPECT_GT(low, 0.45 * step) << text;  // exchanges of experts cross nodes on some ranks alone
  }
}

// Steps of one micro-batch come first: what they have says nothing of steps with more.
TEST(StepTraffic, OfEveryMicroBatchIsBounded) {
  const Target target = slow_network(4);
  const Bounds bounds(target);
  for (const std::string stage : {"2", "3"}) {
    for (const std::string micro_batch : {"16", "8", "4"}) {
      const std::string text =
          "mp=8,sharding_degree=4,sharding_stage=" + stage + ",micro_batch=" + micro_batch;
      const Strategy strategy = parse_strategy(text);
      const double step = step_of(target, strategy).value();
      const double traffic = bounds.traffic(strategy).seconds().value();
      EXPECT_LE(traffic, step) << text;
      EXPECT_GT(traffic, 0.6 * step) << text;
    }
  }
}

TEST(StepTraffic, FamiliesCountTheTransfersThatActionsWaitFor) {
  const Target target = slow_network(16);
  const Bounds bounds(target);
  const FamilyBounds families(target, bounds);
  const Bytes unlimited(std::int64_t{1} << 50);
  for (const std::string chunks : {"1", "2"}) {
    const Space space = enumerate(target.job, target.framework(), 32,
                                  {{"mp", "8"},
                                   {"pp", "4"},
                                   {"recompute", "none"},
                                   {"virtual_stages", chunks},
                                   {"embedding_as_layers", "0"},
                                   {"loss_as_layers", "0"}},
                                  units_of(target.cluster()));
    ASSERT_FALSE(space.legal.empty());
    for (const StrategyFamily& family : space.legal.families()) {
      const double step = step_of(target, family.base).value();
      const double bound = summary_of(families.of(family, unlimited)).step.seconds().value();
      EXPECT_LE(bound, step) << strategy_summary(family.base);
      EXPECT_GT(bound, 0.65 * step) << strategy_summary(family.base);
    }
  }
}

TEST(StepTraffic, FamiliesWithTrafficAreBoundedAsTheirStrategiesAre) {
  const Target target = slow_network(16);
  const Bounds bounds(target);
  const FamilyBounds families(target, bounds);
  const Space space = enumerate(target.job, target.framework(), 32,
                                {{"mp", "8"}, {"pp", "1"}, {"cp", "1"}, {"recompute", "none"}},
                                units_of(target.cluster()));
  const Bytes unlimited(std::int64_t{1} << 50);
  for (const StrategyFamily& family : space.legal.families()) {
    if (family.base.sharding_stage > 1) continue;
    const double step = step_of(target, family.base).value();
    const Picoseconds bound = summary_of(families.of(family, unlimited)).step;
    EXPECT_LE(bound.seconds().value(), step) << strategy_summary(family.base);
    EXPECT_GT(bound.seconds().value(), 0.75 * step) << strategy_summary(family.base);
    EXPECT_LT(summary_of(families.work(family, unlimited)).step, bound)
        << strategy_summary(family.base);
  }
}

}  // namespace
}  // namespace plimsoll
