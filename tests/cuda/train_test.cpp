// Whole training runs on the cuda backend: losses as on the cpu backend, bytes as predicted, graphs
// replayed, a trace with the device's times. Built twice: on the emulation, which says only that
// the sources compute what they should, and for GPUs (gpu.train), where scripts/gpu-check runs it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>

#include "passes/pipeline.h"
#include "runtime/cuda/backend.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/patience.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kSteps = 4;  // one by one, captured, replayed, traced

struct TrainingCase {
  std::string name, model, strategy;
  DType precision = DType::f32;
  bool flash = false;  ///< lowered for GPUs
  double capacity = 0;
  bool drops = false;  ///< rows without memory, of narrower experts beside an MLP
};

void PrintTo(const TrainingCase& c, std::ostream* out) { *out << c.name; }

Job job_of(const TrainingCase& c) {
  Job job = read_job(tests_folder() / (c.model + ".json"));
  job.global_batch = 4;
  job.layers = 2;
  if (job.experts) {
    job.global_batch = 8;
    job.experts->capacity = c.capacity;
    job.experts->shared_ffn_hidden = 8;
    job.experts->balance_loss = 0.01;
    job.experts->selection_bias = 0.05;  // enough to change choices of the next step
    job.experts->drop_overflow = c.drops;
    if (c.drops) {
      job.experts->balance_sequences = 2;
      job.experts->latent_hidden = 6;
      job.experts->dense_ffn_hidden = 10;
    }
  }
  job.precision = c.precision;
  return job;
}

Strategy strategy_of(const TrainingCase& c) {
  Strategy strategy = c.strategy.empty() ? Strategy{} : parse_strategy(c.strategy);
  strategy.gradients.bucket_bytes = Bytes(64 << 10);
  strategy.micro_batch = job_of(c).global_batch / (strategy.dp * strategy.sharding_degree * 2);
  return strategy;
}

TrainResult run(const TrainingCase& c, const Framework& framework, bool on_cuda,
                bool replay = true) {
  TrainOptions options;
  options.steps = kSteps;
  options.warm_up_steps = 0;
  options.deadline = kPatient;
  options.checking = true;
  options.replay = replay;
  if (on_cuda) options.backend_of_rank = make_cuda_backend;
  const Job job = job_of(c);
  return train(lower({job, strategy_of(c), framework}), job, framework, nano_text(), options);
}

Framework framework_of(const TrainingCase& c) {
  return c.flash ? bundled_cuda_framework() : bundled_framework();
}

TrainResult run_on_cuda(const TrainingCase& c, bool replay = true) {
  return run(c, framework_of(c), true, replay);
}

class CudaTraining : public testing::TestWithParam<TrainingCase> {};

INSTANTIATE_TEST_SUITE_P(
    Strategies, CudaTraining,
    testing::Values(
        TrainingCase{"Serial", "gpt-nano", ""}, TrainingCase{"Mp", "gpt-nano", "mp=2"},
        TrainingCase{"Pp", "gpt-nano", "pp=2"}, TrainingCase{"Dp", "gpt-nano", "dp=2"},
        TrainingCase{"Sharding3", "gpt-nano", "sharding_degree=2,sharding_stage=3"},
        TrainingCase{"HostUpdates", "gpt-nano", "sharding_degree=2,offload_optimizer_percent=60"},
        TrainingCase{"HostUpdatesBf16", "gpt-nano",
                     "offload_optimizer_percent=30,overlap_offload=true", DType::bf16},
        TrainingCase{"HostUpdatesAll", "gpt-nano",
                     "sharding_degree=2,sharding_stage=3,offload_optimizer_percent=100",
                     DType::bf16},
        TrainingCase{"PagedStates", "gpt-nano", "sharding_degree=2,paged_states=true", DType::bf16},
        TrainingCase{"PagedCodes", "gpt-nano",
                     "main_parameter_type=none,moment_type=block8,paged_states=true", DType::bf16},
        TrainingCase{"Sequence", "gpt-nano", "mp=2,sequence_parallel=true"},
        TrainingCase{"Llama", "llama-nano", ""},
        TrainingCase{"LlamaMpPp", "llama-nano", "mp=2,pp=2"},
        TrainingCase{"Bf16", "gpt-nano", "", DType::bf16},
        TrainingCase{"LlamaBf16Mp", "llama-nano", "mp=2", DType::bf16},
        TrainingCase{"Flash", "gpt-nano", "", DType::f32, true},
        TrainingCase{"FlashLlama", "llama-nano", "recompute=full", DType::f32, true},
        TrainingCase{"FlashLlamaBf16Pp", "llama-nano", "pp=2", DType::bf16, true},
        TrainingCase{"Ring", "llama-nano", "cp=2", DType::f32, true},
        TrainingCase{"RingBf16", "llama-nano", "cp=2", DType::bf16, true},
        TrainingCase{"KeysGathered", "gpt-nano", "cp=2,context_exchange=all_gather"},
        TrainingCase{"HeadsExchanged", "llama-nano", "cp=2,context_exchange=all_to_all"},
        TrainingCase{"Experts", "expert-nano", "dp=2,ep=2,expert_rows_percent=200", DType::f32,
                     false, 0.75},
        TrainingCase{"ExpertsTogether", "expert-nano",
                     "mp=2,dp=2,ep=2,etp=2,sequence_parallel=true,expert_rows_percent=200"},
        TrainingCase{"ExpertsDropping", "expert-nano", "dp=2,ep=2,expert_rows_percent=100",
                     DType::f32, false, 0, true},
        TrainingCase{"ExpertsGatheredDropping", "expert-nano",
                     "dp=2,ep=2,expert_rows_percent=100,expert_dispatch=all_gather", DType::f32,
                     false, 0, true}),
    [](const auto& info) { return info.param.name; });

// Sums are taken in another order, and a few functions are other approximations: losses of f32
// agree to a few roundings of single values. In bf16 each op rounds its result, differently for
// single values; a loss is a mean over many.
TEST_P(CudaTraining, LosesAsTheCpuBackendDoesInThePredictedBytes) {
  const TrainingCase& c = GetParam();
  const TrainResult cpu = run(c, bundled_framework(), false);
  const TrainResult cuda = run_on_cuda(c);
  const double tolerance = c.precision == DType::f32 ? 1e-5 : 0x1p-8;
  ASSERT_EQ(cuda.measured.losses.size(), std::size_t(kSteps));
  for (std::size_t step = 0; step < std::size_t(kSteps); ++step) {
    const double expected = cpu.measured.losses[step];
    EXPECT_NEAR(cuda.measured.losses[step], expected, tolerance * expected) << "step " << step;
    EXPECT_NEAR(cuda.measured.gradient_norms[step], cpu.measured.gradient_norms[step],
                100 * tolerance * cpu.measured.gradient_norms[step])
        << "step " << step;
  }
  EXPECT_EQ(cuda.measured.backend, "cuda");
  EXPECT_EQ(cuda.measured.experts, cpu.measured.experts);
  const auto programs = lower({job_of(c), strategy_of(c), framework_of(c)});
  for (const RankMemory& counted : cuda.measured.timeline.memory) {
    const Coordinates at = programs[0].grid.coordinates(counted.rank);
    const Program& program = programs[class_of(programs, at)];
    EXPECT_EQ(counted.peak, memory_peak(program).peak) << "rank " << counted.rank;
  }
}

// Kernels do not throw: they keep the rows that fit, and tell the host.
TEST(CudaExperts, EndWithTheLayerWhereRowsExceedTheirMemory) {
  for (const char* dispatch : {"all_to_all", "all_gather"}) {
    std::string said;
    try {
      run_on_cuda({"", "expert-nano",
                   std::string("dp=4,ep=4,expert_rows_percent=100,expert_dispatch=") + dispatch});
    } catch (const std::exception& error) {
      said = error.what();
    }
    EXPECT_NE(said.find(" of layer "), std::string::npos) << said;
    EXPECT_NE(said.find("; raise expert_rows_percent, or give the job a capacity"),
              std::string::npos)
        << said;
  }
}

TEST(CudaGraphs, ReplayedKernelsComputeWhatSingleOnesDo) {
  const TrainingCase c{"", "gpt-nano", "mp=2"};
  const TrainResult single = run_on_cuda(c, false);
  const TrainResult replayed = run_on_cuda(c);
  EXPECT_EQ(replayed.measured.losses, single.measured.losses);
  EXPECT_EQ(replayed.measured.gradient_norms, single.measured.gradient_norms);
}

TEST(CudaTrace, IntervalsAreInOrderAndWithinTheStep) {
  const Timeline timeline = run_on_cuda({"", "gpt-nano", ""}).measured.timeline;
  ASSERT_GT(timeline.intervals.size(), 50u);
  Picoseconds last;
  for (const Interval& interval : timeline.intervals) {
    EXPECT_GE(interval.begin, last);
    EXPECT_GE(interval.end, interval.begin);
    last = interval.end;
  }
  const auto& curve = timeline.memory[0].curve;
  EXPECT_TRUE(std::is_sorted(curve.begin(), curve.end(),
                             [](const auto& a, const auto& b) { return a.time < b.time; }));
}

}  // namespace
}  // namespace plimsoll
