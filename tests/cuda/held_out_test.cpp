// On GPUs, too, computing the loss of a text that is held out changes nothing, and it is the loss
// that the CPU backend computes.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "runtime/cuda/backend.h"
#include "tests/cuda/four_gpus.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/saved_training.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kTrainedSteps = 5;  // graphs are replayed from the third on

struct HeldOutCase {
  std::string name, model, strategy;
  DType precision = DType::f32;
  double dropout = 0;
};

Job job_of(const HeldOutCase& c) {
  Job job = read_job(tests_folder() / (c.model + ".json"));
  job.layers = 1;
  job.global_batch = job.experts ? 8 : 4;
  job.precision = c.precision;
  job.dropout = c.dropout;
  if (job.experts) {
    job.experts->score = RouterScore::sigmoid;
    job.experts->selection_bias = 0.05;
  }
  if (c.precision == DType::f16) job.loss_scale = LossScale{1024, 2, 0.5, 2};
  return job;
}

struct Trained {
  std::vector<double> held_out;  ///< by step; NaN where it was not due
  TrainResult result;
};
Trained train_case(const HeldOutCase& c, bool on_cuda, bool holds_out) {
  const Job job = job_of(c);
  TrainOptions options = some_steps(kTrainedSteps);
  if (on_cuda) options.backend_of_rank = make_cuda_backend;
  const std::vector<std::byte> text(nano_text().begin() + 100, nano_text().end());
  if (holds_out) options.held_out = HeldOut{text, 2, 2};  // two batches behind every second step
  Trained trained;
  options.progress = [&](std::int64_t, double, Seconds, double loss) {
    trained.held_out.push_back(loss);
  };
  trained.result = train_nano(nano_programs(parse_strategy(c.strategy), job), options, job);
  return trained;
}

class CudaHeldOut : public FourGpus, public testing::WithParamInterface<HeldOutCase> {};

INSTANTIATE_TEST_SUITE_P(
    Strategies, CudaHeldOut,
    testing::Values(HeldOutCase{"MpDropout", "gpt-nano", "mp=2,micro_batch=2", DType::f32, 0.2},
                    HeldOutCase{"Sharding3", "gpt-nano",
                                "sharding_degree=2,sharding_stage=3,micro_batch=2"},
                    HeldOutCase{"F16", "gpt-nano", "micro_batch=2", DType::f16},
                    HeldOutCase{"Masked", "bert-nano", "dp=2,micro_batch=2"},
                    HeldOutCase{"SelectionBias", "expert-nano", "dp=2,ep=2"}),
    [](const auto& info) { return info.param.name; });

TEST_P(CudaHeldOut, ChangesNothingAndIsTheLossOfTheCpuBackend) {
  const HeldOutCase& c = GetParam();
  const Trained without = train_case(c, true, false), with = train_case(c, true, true);
  EXPECT_EQ(with.result.measured.losses, without.result.measured.losses);
  EXPECT_EQ(with.result.measured.gradient_norms, without.result.measured.gradient_norms);
  EXPECT_EQ(with.result.parameters, without.result.parameters);
  const Trained cpu = train_case(c, false, true);
  ASSERT_EQ(with.held_out.size(), std::size_t(kTrainedSteps));
  const double tolerance = c.precision == DType::f32 ? 1e-4 : 1e-2;
  for (std::size_t step = 0; step < with.held_out.size(); ++step) {
    ASSERT_EQ(std::isnan(with.held_out[step]), std::isnan(cpu.held_out[step])) << step;
    if (std::isnan(cpu.held_out[step])) continue;
    EXPECT_NEAR(with.held_out[step], cpu.held_out[step], tolerance * cpu.held_out[step]) << step;
  }
}

}  // namespace
}  // namespace plimsoll
