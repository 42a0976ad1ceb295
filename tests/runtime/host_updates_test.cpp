// Runs whose host updates a share of the parameters are, bit by bit, those without, and so are what
// they save and how they go on.
#include <gtest/gtest.h>

#include "tests/runtime/nano.h"
#include "tests/runtime/saved_training.h"

namespace plimsoll {
namespace {

Job job_in(DType precision, OptimizerKind optimizer = OptimizerKind::adamw) {
  Job job = nano_job();
  job.precision = precision;
  job.optimizer.kind = optimizer;
  if (precision == DType::f16) job.loss_scale = LossScale{.initial = 0x1p40, .backoff = 0x1p-30};
  return job;
}

TrainResult run(const Job& job, const Strategy& strategy, bool checking = false) {
  const std::vector<Program> programs = nano_programs(strategy, job);
  TrainOptions options = steps_of(4);
  options.keep_parameters = true;
  options.checking = checking;
  TrainResult result = train_nano(programs, options, job);
  expect_predicted_bytes(programs, result.measured, checking);
  return result;
}

const char* const kHostSplits[] = {
    "dp=1",
    "dp=2,overlap_grad_reduce=false",
    "mp=2,sequence_parallel=true",
    "cp=2",
    "pp=2",
    "sharding_degree=2",
    "sharding_degree=2,dp=2,cast_placement=after_update",
    "sharding_degree=2,sharding_stage=2",
    "sharding_degree=2,sharding_stage=3",
};

void expect_same_training(const Job& job, const Strategy& plain) {
  const TrainResult expected = run(job, plain);
  for (const auto& [percent, overlaps] : {std::pair(100, false), std::pair(40, true)}) {
    Strategy host = plain;
    host.optimizer.offload_percent = percent;
    host.optimizer.overlap_offload = overlaps;
    for (const bool checking : {false, true}) {
      SCOPED_TRACE(strategy_summary(host) + (checking ? ", checked" : ""));
      const TrainResult found = run(job, host, checking);
      EXPECT_EQ(found.measured.losses, expected.measured.losses);
      if (!job.loss_scale) {  // else the first one is no number
        EXPECT_EQ(found.measured.gradient_norms, expected.measured.gradient_norms);
      }
      EXPECT_EQ(found.parameters, expected.parameters);
      EXPECT_LT(found.measured.timeline.memory[0].peak, expected.measured.timeline.memory[0].peak);
    }
  }
}

TEST(HostUpdates, TrainTheSameBits) {
  for (const DType precision : {DType::f32, DType::bf16})
    for (const char* split : kHostSplits)
      expect_same_training(job_in(precision), nano_strategy(split, 2, Recompute::none));
}

TEST(HostUpdates, TrainTheSameBitsWithOtherSettings) {
  // The first step, whose gradients are not finite, changes nothing.
  expect_same_training(job_in(DType::f16), nano_strategy("sharding_degree=2", 2, Recompute::none));
  for (const DType precision : {DType::f32, DType::bf16})
    expect_same_training(job_in(precision, OptimizerKind::sgd),
                         nano_strategy("sharding_degree=2", 2, Recompute::none));
  expect_same_training(job_in(DType::bf16),
                       nano_strategy("gradient_type=computed", 2, Recompute::none));
}

/// Moments that are in the host's memory but for the update.
TEST(PagedStates, TrainTheSameBits) {
  constexpr const char* kTypes[] = {
      "",
      ",cast_placement=every_use",
      ",main_parameter_type=none,moment_type=bf16,stochastic_rounding=true",
      ",moment_type=block8",
      ",main_parameter_type=none,moment_type=block8,gradient_type=computed,"
      "main_gradient_type=computed",
  };
  for (const char* split : kHostSplits) {
    for (const char* types : kTypes) {
      const std::string fields = std::string(split) + types;
      if (fields.find("after_update") != fields.npos) continue;
      if (*types != '\0' && std::string_view(split).starts_with("mp")) continue;
      Job job = job_in(DType::bf16);
      job.optimizer.epsilon = 1e-6;
      const Strategy plain = nano_strategy(fields, 2, Recompute::none);
      const TrainResult expected = run(job, plain);
      Strategy paged = plain;
      paged.optimizer.paged = true;
      for (const bool checking : {false, true}) {
        SCOPED_TRACE(strategy_summary(paged) + (checking ? ", checked" : ""));
        const TrainResult found = run(job, paged, checking);
        EXPECT_EQ(found.measured.losses, expected.measured.losses);
        EXPECT_EQ(found.parameters, expected.parameters);
        EXPECT_LT(found.measured.timeline.memory[0].peak,
                  expected.measured.timeline.memory[0].peak);
      }
    }
  }
}

TEST(PagedStates, GoOnFromACheckpoint) {
  for (const char* types : {"", ",moment_type=block8"}) {
    const Job job = job_in(DType::bf16);
    const auto programs = nano_programs(
        nano_strategy(std::string("sharding_degree=2,paged_states=true") + types, 2, {}), job);
    const auto [whole, resumed] = continue_training(programs, job);
    EXPECT_EQ(resumed.parameters, whole.parameters);
  }
}

TEST(HostUpdates, GoOnFromACheckpoint) {
  for (const DType precision : {DType::f32, DType::bf16}) {
    const Job job = job_in(precision);
    for (const char* split : {"dp=1", "sharding_degree=2", "sharding_degree=2,sharding_stage=3"}) {
      SCOPED_TRACE(split);
      const auto programs = nano_programs(
          nano_strategy(std::string(split) + ",offload_optimizer_percent=40", 2, {}), job);
      const auto [whole, resumed] = continue_training(programs, job);
      EXPECT_EQ(resumed.parameters, whole.parameters);
    }
  }
}

/// Masters and moments are written as they were read, whatever share the host has.
TEST(HostUpdates, KeepWhatAnotherShareAndSplitSaved) {
  for (const DType precision : {DType::f32, DType::bf16}) {
    const Job job = job_in(precision);
    const ScratchFolder first, second;
    const auto trained = nano_programs(nano_strategy("sharding_degree=2", 2, {}), job);
    TrainOptions options = some_steps(2);
    options.save = save_in(first.path(), job);
    train_nano(trained, options, job);
    for (const char* fields :
         {"offload_optimizer_percent=100", "offload_optimizer_percent=30",
          "mp=2,offload_optimizer_percent=70", "sharding_degree=4,offload_optimizer_percent=55",
          "sharding_degree=2,sharding_stage=3,offload_optimizer_percent=5", "paged_states=true"}) {
      SCOPED_TRACE(fields);
      copy_through(nano_programs(nano_strategy(fields, 2, {}), job), first.path(), second.path());
      EXPECT_EQ(saved_values(second.path()), saved_values(first.path()));
    }
  }
}

}  // namespace
}  // namespace plimsoll
