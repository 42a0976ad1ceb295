// Strategies drawn over all switches, on the cuda backend: losses of the cpu backend with the same
// Programs, bytes as predicted. PLIMSOLL_DRAWS=FIRST:COUNT draws others than the few of the suite.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "passes/pipeline.h"
#include "runtime/cuda/backend.h"
#include "tests/draws.h"
#include "tests/passes/random_strategies.h"
#include "tests/runtime/nano.h"

namespace plimsoll {
namespace {

std::vector<std::uint64_t> seeds() {
  const Draws draws = wanted_draws({.first = 1, .count = 6});
  std::vector<std::uint64_t> seeds;
  for (std::int64_t i = 0; i < draws.count; ++i) seeds.push_back(std::uint64_t(draws.first + i));
  return seeds;
}

TrainResult run(const std::vector<Program>& programs, const Job& job, bool on_cuda) {
  TrainOptions options;
  options.steps = 4;  // one by one, captured, replayed, traced
  options.warm_up_steps = 0;
  options.checking = true;
  if (on_cuda) options.backend_of_rank = make_cuda_backend;
  return train_nano(programs, options, job);
}

class CudaDraw : public testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Random, CudaDraw, testing::ValuesIn(seeds()),
                         [](const auto& info) { return "seed" + std::to_string(info.param); });

// In f32 the tolerance is that of random draws against the serial run (tests/runtime). In 16-bit
// types both backends round and approximate functions differently, and updates of models this small
// amplify that. Sums of gradients in such a type round once more.
TEST_P(CudaDraw, TrainsAsTheCpuBackendDoesInThePredictedBytes) {
  const Draw drawn = draw(GetParam());
  SCOPED_TRACE(describe(drawn));
  const bool has_kernels = drawn.job.dropout == 0 && head_width(drawn.job) % 8 == 0;
  if (drawn.strategy.cp > 1 && !has_kernels)
    GTEST_SKIP() << "flash attention of the cuda backend has no dropout and no such heads";
  const auto programs = lower({drawn.job, drawn.strategy, bundled_framework()});
  const TrainResult cpu = run(programs, drawn.job, false), cuda = run(programs, drawn.job, true);
  const bool sums_rounded = drawn.strategy.precision.gradients == GradientType::computed;
  const double tolerance =
      drawn.job.precision == DType::f32 ? 1e-4 : (sums_rounded ? 0x1p-6 : 0x1p-7);
  for (std::size_t step = 0; step < cpu.measured.losses.size(); ++step) {
    const double expected = cpu.measured.losses[step];
    EXPECT_NEAR(cuda.measured.losses[step], expected, tolerance * std::abs(expected)) << step;
  }
  for (const RankMemory& counted : cuda.measured.timeline.memory) {
    const Coordinates at = programs[0].grid.coordinates(counted.rank);
    EXPECT_EQ(counted.peak, memory_peak(programs[class_of(programs, at)]).peak);
  }
}

}  // namespace
}  // namespace plimsoll
