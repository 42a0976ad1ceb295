// A search gets from few micro-batches the step time that all of them give.
#include "planner/explore/fewer_micro_batches.h"

#include <gtest/gtest.h>

#include <random>

#include "planner/explore/assess.h"
#include "planner/search/extended_breakdown.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

Cluster gpus() {
  Cluster cluster = small_cluster();
  cluster.device.kind = DeviceKind::gpu;
  cluster.device.memory = Bytes(std::int64_t{64} << 30);
  return cluster;
}

SearchRequest request_for(const char* framework) {
  SearchRequest request;
  request.job = nano_job();
  request.job.hidden = 256;
  request.job.ffn_hidden = 1024;
  request.job.sequence = 128;
  request.job.layers = 12;
  request.job.global_batch = 512;
  request.framework = framework_by_name(framework);
  request.devices = 8;
  request.cluster_digest = std::string(64, '0');
  return request;
}

TEST(FewerMicroBatches, GiveTheStepAndTheMemoryOfAll) {
  const CostModel costs = small_costs(gpus());
  std::mt19937_64 random(5);
  std::int64_t shorter = 0, shown = 0, taken_apart = 0;
  for (const char* framework :
       {"megatron-lm", "megatron-deepspeed", "megatron-fsdp", "paddle-2.2"}) {
    const SearchRequest request = request_for(framework);
    const StrategyList legal = enumerate(request.job, request.framework, request.devices, {}).legal;
    for (int draw = 0; draw < 60; ++draw) {
      Strategy strategy = legal[random() % legal.size()];
      if (strategy.pp > 1 && draw % 4 == 1) strategy.send_slots = 40;
      if (strategy.pp > 1 && draw % 4 == 2) strategy.send_lifetime = SendLifetime::published;
      if (strategy.pp > 1 && draw % 4 == 3) strategy.send_lifetime = SendLifetime::held;
      const auto fewer = with_fewer_micro_batches(request.job, strategy, request.framework);
      if (!fewer) continue;
      ++shorter;
      const std::string text = std::string(framework) + " " + strategy_summary(strategy);
      const LayerShape shape = layer_shape(request.job, strategy);
      const Footprint few =
          lay_out(fewer->job, strategy, request.framework, gpus(), Bytes(), Proof::none);
      const Footprint all =
          lay_out(request.job, strategy, request.framework, gpus(), Bytes(), Proof::none);
      EXPECT_EQ(few.peak, all.peak) << text;
      EXPECT_EQ(few.allocated, all.allocated) << text;
      EXPECT_EQ(few.reserved, all.reserved) << text;
      const CostModel own = costs_of(costs, shape);
      const auto step = step_time(few.programs, fewer->stand_for, own);
      if (!step) continue;
      ++shown;
      const Evaluation whole = predict(request.job, strategy, all, costs, request.devices,
                                       Folding::folded, Detail::critical);
      EXPECT_EQ(*step, simulate(all.programs, own, Folding::unfolded, Detail::ops).step_time)
          << text;
      const auto parts = extended_parts(request, costs, strategy, *step);
      if (!parts) continue;
      ++taken_apart;
      EXPECT_EQ(*parts, whole.parts) << text;
    }
  }
  EXPECT_GT(shorter, 60);
  EXPECT_GT(shown, shorter * 8 / 10) << "of " << shorter;
  EXPECT_GT(taken_apart, shown / 2) << "of " << shown;
}

}  // namespace
}  // namespace plimsoll
