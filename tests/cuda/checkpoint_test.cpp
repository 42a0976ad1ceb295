// A training on the cuda backend is saved from device memory and loaded into it. It goes on with
// the same bits there, and up to rounding on the cpu backend, also where its learning rate decays.
#include <gtest/gtest.h>

#include "passes/pipeline.h"
#include "runtime/cuda/backend.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/saved_training.h"

namespace plimsoll {
namespace {

Measured train_some(const std::vector<Program>& programs, const Job& job, bool on_cuda,
                    std::int64_t steps, const std::filesystem::path& save,
                    const std::filesystem::path& resume) {
  TrainOptions options = some_steps(steps);
  options.rates = {1, 4, RateDecay::cosine, 0.1};
  if (on_cuda) options.backend_of_rank = make_cuda_backend;
  if (!save.empty()) options.save = save_in(save, job);
  if (!resume.empty()) options.resume = std::make_shared<SavedCheckpoint>(resume);
  return train_nano(programs, options, job).measured;
}

TEST(CudaCheckpoint, GoesOnThereAndOnTheCpu) {
  Job job = nano_job();
  job.global_batch = 4;
  job.layers = 2;
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::lamb,
                                   OptimizerKind::muon, OptimizerKind::adafactor}) {
    job.optimizer.kind = kind;
    job.precision = kind == OptimizerKind::adamw ? DType::bf16 : DType::f32;
    Strategy strategy = parse_strategy("sharding_degree=2,sharding_stage=1,micro_batch=2");
    if (kind >= OptimizerKind::muon) {
      strategy.optimizer.flatten = Flatten::none;
      strategy.owners.sharding_owner = ShardingOwner::greedy;
    }
    const auto programs = nano_programs(strategy, job);
    const ScratchFolder scratch, on_cpu;
    train_some(programs, job, true, 2, scratch.path(), "");
    const Measured whole = train_some(programs, job, true, 4, "", "");
    const Measured same = train_some(programs, job, true, 2, "", scratch.path());
    const Measured cpu = train_some(programs, job, false, 2, "", scratch.path());
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(same.losses[i], whole.losses[2 + i]);
      EXPECT_NEAR(cpu.losses[i], whole.losses[2 + i], 0x1p-8 * whole.losses[2 + i]);
    }
    copy_through(programs, scratch.path(), on_cpu.path());
    EXPECT_EQ(saved_values(on_cpu.path()), saved_values(scratch.path()));
  }
}

}  // namespace
}  // namespace plimsoll
