// A search gets from few micro-batches the step time that all of them give.
#include "planner/bounds/shorter_step.h"

#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "passes/strategy/pipeline_order.h"
#include "planner/explore/search_request.h"
#include "planner/search/extended_breakdown.h"
#include "predict/evaluate.h"
#include "tests/planner/random_problems.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

Cluster roomy_gpus() {
  Cluster cluster = small_cluster();
  cluster.device.kind = DeviceKind::gpu;
  cluster.device.memory = Bytes(std::int64_t{64} << 30);
  return cluster;
}

Target target_for(const char* framework) {
  Job job = nano_job();
  job.hidden = 256;
  job.ffn_hidden = 1024;
  job.sequence = 128;
  job.layers = 12;
  job.global_batch = 512;
  return Target(job, CostModel(roomy_gpus(), std::nullopt, framework_by_name(framework)), 8);
}

TEST(RepeatedActions, LieBetweenFillingAndDraining) {
  // Two forwards, eight pairs of a forward and a backward, two backwards.
  const RepeatedActions pairs =
      repeated_actions(pipeline_order(Schedule::one_f_one_b, 4, 1, 1, 10), 10, 1);
  EXPECT_EQ(std::tuple(pairs.first, pairs.length, pairs.count), std::tuple(2u, 2u, 8u));
  // Four forwards first; a cycle is two micro-batches on two chunks.
  const RepeatedActions groups =
      repeated_actions(pipeline_order(Schedule::one_f_one_b, 2, 0, 2, 12), 12, 2);
  EXPECT_EQ(std::tuple(groups.first, groups.length, groups.count), std::tuple(4u, 8u, 5u));
  EXPECT_EQ(repeated_actions(pipeline_order(Schedule::gpipe, 4, 1, 1, 10), 10, 1).count, 0u);
}

void expect_same_memory(const Footprint& few, const Footprint& all, const std::string& text) {
  for (const auto bytes :
       {&StagePrediction::peak, &StagePrediction::allocated, &StagePrediction::reserved})
    EXPECT_EQ(largest(few.stages, bytes), largest(all.stages, bytes)) << text;
}

TEST(FewerMicroBatches, GiveTheStepAndTheMemoryOfAll) {
  std::mt19937_64 random(5);
  const int draws = problems_to_draw(24);
  std::int64_t shorter = 0, shown = 0, taken_apart = 0;
  for (const char* framework :
       {"megatron-lm", "megatron-deepspeed", "megatron-fsdp", "paddle-2.2"}) {
    const Target target = target_for(framework);
    const StrategyList legal = enumerate(SearchRequest{target}).legal;
    for (int draw = 0; draw < draws; ++draw) {
      Strategy strategy = legal[random() % legal.size()];
      if (strategy.pp > 1 && draw % 4 == 1) strategy.pipeline.send_slots = 40;
      if (strategy.pp > 1 && draw % 4 == 2)
        strategy.pipeline.send_lifetime = SendLifetime::published;
      if (strategy.pp > 1 && draw % 4 == 3) strategy.pipeline.send_lifetime = SendLifetime::held;
      const auto fewer = with_fewer_micro_batches(target, strategy);
      if (!fewer) continue;
      ++shorter;
      const std::string text = std::string(framework) + " " + strategy_summary(strategy);
      const Footprint few = lay_out(fewer->target, strategy, Proof::none);
      const Footprint all = lay_out(target, strategy, Proof::none);
      expect_same_memory(few, all, text);
      const CostModel own = costs_of(target, strategy);
      const auto step = step_time(few.programs, fewer->stand_for, own);
      if (!step) continue;
      ++shown;
      const Evaluation whole = predict(target, strategy, all, Folding::folded, Detail::critical);
      EXPECT_EQ(*step, simulate(all.programs, own, Folding::unfolded, Detail::ops).step_time)
          << text;
      const auto parts = extended_parts(target, strategy, *step);
      if (!parts) continue;
      ++taken_apart;
      EXPECT_EQ(*parts, whole.parts) << text;
    }
  }
  EXPECT_GT(shorter, draws);
  EXPECT_GT(shown, shorter * 8 / 10) << "of " << shorter;
  EXPECT_GT(taken_apart, shown / 2) << "of " << shown;
}

}  // namespace
}  // namespace plimsoll
