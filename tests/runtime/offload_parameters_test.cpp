// Runs with parameters in the host's memory are, bit by bit, those without.
#include <gtest/gtest.h>

#include "tests/runtime/nano.h"
#include "tests/runtime/saved_training.h"

namespace plimsoll {
namespace {

TrainResult run_in_steps(const Job& job, const Strategy& strategy, bool checking) {
  const std::vector<Program> programs = nano_programs(strategy, job);
  TrainOptions options = steps_of(3);
  options.keep_gradients = options.keep_parameters = true;
  options.checking = checking;
  TrainResult result = train_nano(programs, options, job);
  expect_predicted_bytes(programs, result.measured, checking);
  return result;
}

Job with_adapters() {
  Job job = read_job(tests_folder() / "llama-nano.json");
  job.adapters = Adapters{.rank = 4, .targets = {AdapterTarget::query, AdapterTarget::value}};
  return job;
}

void expect_same_bits(const Job& job, const Strategy& plain, const Strategy& offloaded) {
  const TrainResult expected = run_in_steps(job, plain, false);
  for (const bool checking : {false, true}) {
    SCOPED_TRACE(strategy_summary(offloaded) + (checking ? ", checked" : ""));
    const TrainResult found = run_in_steps(job, offloaded, checking);
    EXPECT_EQ(found.measured.losses, expected.measured.losses);
    EXPECT_EQ(found.gradients, expected.gradients);
    EXPECT_EQ(found.parameters, expected.parameters);
    EXPECT_LT(found.measured.timeline.memory[0].peak, expected.measured.timeline.memory[0].peak);
  }
}

constexpr const char* kShards[] = {
    "sharding_degree=2,sharding_stage=3",
    "sharding_degree=4,sharding_stage=3,prefetch_depth=0",
    "sharding_degree=2,sharding_stage=3,keep_gathered=true,prefetch_depth=2",
    "sharding_degree=2,sharding_stage=3,gather=module",
    "sharding_degree=2,sharding_stage=3,cp=2",
    "sharding_degree=2,sharding_stage=3,pp=2",
    "sharding_degree=2,sharding_stage=3,pp=2,schedule=zb_h1",
    "sharding_degree=2,sharding_stage=3,mp=2,dp=2",
    "sharding_degree=2,sharding_stage=3,persistence_threshold=100",
};

TEST(OffloadParameters, FrozenOnesTrainTheSameBits) {
  for (const bool packed : {false, true}) {
    Job job = with_adapters();
    if (packed) job.frozen_weights = FrozenWeights::nf4_nested;
    for (const char* fields : kShards) {
      const Strategy plain = nano_strategy(fields, 2, Recompute::none);
      Strategy offloaded = plain;
      offloaded.gathers.offload = true;
      if (packed && plain.mp > 1) continue;  // weights in 4 bits are not split
      expect_same_bits(job, plain, offloaded);
    }
  }
}

TEST(OffloadParameters, FrozenOnesOfOneRankTrainTheSameBits) {
  for (const char* fields : {"dp=1", "dp=2", "mp=2", "pp=2"}) {
    const Strategy plain = nano_strategy(fields, 2, Recompute::full);
    Strategy offloaded = plain;
    offloaded.sharding_stage = 3;
    offloaded.gathers.offload = true;
    const Job job = with_adapters();
    const TrainResult expected = run_in_steps(job, plain, false),
                      found = run_in_steps(job, offloaded, true);
    EXPECT_EQ(found.measured.losses, expected.measured.losses);
    EXPECT_EQ(found.parameters, expected.parameters);
    EXPECT_LT(found.measured.timeline.memory[0].peak, expected.measured.timeline.memory[0].peak);
  }
}

TEST(OffloadParameters, WhatTheHostUpdatesTrainsTheSameBits) {
  for (const DType precision : {DType::f32, DType::bf16}) {
    Job job = read_job(tests_folder() / "llama-nano.json");
    job.precision = precision;
    for (const char* fields : kShards) {
      Strategy plain = nano_strategy(fields, 2, Recompute::none);
      plain.optimizer.offload_percent = 100;
      Strategy offloaded = plain;
      offloaded.gathers.offload = true;
      expect_same_bits(job, plain, offloaded);
    }
    for (const char* fields : {"dp=1", "dp=2", "mp=2", "pp=2"}) {
      Strategy plain = nano_strategy(fields, 2, Recompute::full);
      plain.optimizer.offload_percent = 100;
      Strategy offloaded = plain;
      offloaded.sharding_stage = 3;
      offloaded.gathers.offload = true;
      SCOPED_TRACE(fields);
      const TrainResult expected = run_in_steps(job, plain, false),
                        found = run_in_steps(job, offloaded, true);
      ASSERT_EQ(found.parameters.size(), expected.parameters.size());
      for (std::size_t step = 0; step < 3; ++step)
        EXPECT_NEAR(found.measured.losses[step], expected.measured.losses[step], 1e-4) << step;
      for (std::size_t rank = 0; rank < found.parameters.size(); ++rank) {
        // Sums of micro-batches are rounded elsewhere.
        const auto &one = found.parameters[rank], &other = expected.parameters[rank];
        ASSERT_EQ(one.size(), other.size());
        for (std::size_t i = 0; i < one.size(); ++i)
          ASSERT_NEAR(one[i], other[i], precision == DType::f32 ? 1e-6 : 1e-3) << i;
      }
    }
  }
}

TEST(OffloadParameters, GoOnFromACheckpoint) {
  const Job job = read_job(tests_folder() / "llama-nano.json");
  const auto programs = nano_programs(
      nano_strategy("sharding_degree=2,sharding_stage=3,offload_optimizer_percent=100,"
                    "offload_parameters=true",
                    1, Recompute::none),
      job);
  const auto [whole, resumed] = continue_training(programs, job);
  EXPECT_EQ(resumed.parameters, whole.parameters);
}

}  // namespace
}  // namespace plimsoll
