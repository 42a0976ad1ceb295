// Where training in 16 bits on many ranks differs from one rank by more than a rounding, and why.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/runtime/nano.h"

namespace plimsoll {
namespace {

Measured trained(const Job& job, const std::string& fields, std::int64_t micro_batches,
                 Recompute recompute, std::int64_t steps) {
  const Strategy strategy = nano_strategy(fields, micro_batches, recompute);
  return train_nano(nano_programs(strategy, job), steps_of(steps), job).measured;
}

/// Norms that are not finite in both, of steps that are skipped, are equal.
void expect_close(const std::vector<double>& found, const std::vector<double>& expected,
                  double bound) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t step = 0; step < found.size(); ++step) {
    EXPECT_EQ(std::isfinite(found[step]), std::isfinite(expected[step])) << step;
    if (!std::isfinite(expected[step])) continue;
    EXPECT_NEAR(found[step], expected[step], bound * expected[step]) << step;
  }
}

// ---- gradients in fp16 ----

constexpr std::int64_t kScaledSteps = 12;

/// Norms behind branches make its gradients large. The scale grows in every other step.
Job scaled_job() {
  Job job = read_job(tests_folder() / "ernie-nano.json");
  job.layers = 5;  // and two of the branch
  job.precision = DType::f16;
  job.loss_scale = LossScale{0x1p16, 2, 0.5, 2};
  return job;
}

// Gradients times the scale overflow above 65504, the largest number of fp16, and not in f32. So
// ranks with gradients in fp16 skip steps that one rank with gradients in f32 makes. One rank with
// gradients in fp16 skips them, too. It differs by roundings of 2^-11 in sums, which mostly cancel.
TEST(GradientsInFp16, SkipTheStepsThatOneRankWithSuchGradientsSkips) {
  const Job job = scaled_job();
  const Measured wide = trained(job, "", 1, Recompute::none, kScaledSteps);
  const Measured one = trained(job, "gradient_type=computed", 1, Recompute::none, kScaledSteps);
  EXPECT_EQ(wide.skipped_steps, 0);
  EXPECT_GT(one.skipped_steps, 0);
  EXPECT_NE(one.loss_scales, wide.loss_scales);
  for (const std::string fields : {"dp=2,gradient_type=computed,flatten=coalesced",
                                   "sharding_degree=2,sharding_stage=3,gradient_type=computed",
                                   "pp=7,schedule=zb_h1,gradient_type=computed"}) {
    SCOPED_TRACE(fields);
    const Measured many = trained(job, fields, 1, Recompute::none, kScaledSteps);
    EXPECT_EQ(many.skipped_steps, one.skipped_steps);
    EXPECT_EQ(many.loss_scales, one.loss_scales);
    expect_close(many.losses, one.losses, 0x1p-11);
    expect_close(many.gradient_norms, one.gradient_norms, 0x1p-9);
  }
}

// With gradients in f32 these ranks skip no step, as one rank does not.
TEST(GradientsInFp16, ThatAreAddedUpInF32SkipNoMoreThanOneRank) {
  const Job job = scaled_job();
  const Measured one = trained(job, "", 1, Recompute::none, kScaledSteps);
  for (const std::string fields : {"dp=2,flatten=coalesced", "pp=7,schedule=zb_h1"}) {
    SCOPED_TRACE(fields);
    const Measured many = trained(job, fields, 1, Recompute::none, kScaledSteps);
    EXPECT_EQ(many.skipped_steps, 0);
    EXPECT_EQ(many.loss_scales, one.loss_scales);
    expect_close(many.losses, one.losses, 0x1p-11);
    expect_close(many.gradient_norms, one.gradient_norms, 0x1p-9);
  }
}

// ---- products in bf16 ----

constexpr std::int64_t kSpikedSteps = 12, kSpike = 7;  // the step in which the norm jumps

/// Its gradient norm jumps from 1.5 to 3.1 in one step, and falls again in the next.
Job spiked_job(DType precision) {
  Job job = read_job(tests_folder() / "llama-nano.json");
  job.layers = 8;
  job.hidden = 32;
  job.kv_heads = 1;
  job.ffn_hidden = 80;
  job.vocab = 257;
  job.sequence = 12;
  job.qkv_bias = true;
  job.optimizer.groups = {{"embedding", 0.01, false, {}}};
  job.seed = 159;
  job.precision = precision;
  return job;
}

// In f32 the ranks have the norms of one rank. In bf16 a product rounds by 2^-8, and where the norm
// jumps a rounding of the parameters moves it by some per cent: on one rank as much as on four.
TEST(ProductsInBf16, MoveASpikeOfTheNormOnOneRankAsMuchAsOnMany) {
  const std::string fields = "mp=4,recompute_list=2,gradient_merge=fused";
  const Job exact = spiked_job(DType::f32), rounded = spiked_job(DType::bf16);
  const Measured one = trained(exact, "", 1, Recompute::none, kSpikedSteps);
  const Measured many =
      trained(exact, "mp=4,recompute_list=2", 16, Recompute::selective, kSpikedSteps);
  EXPECT_GT(one.gradient_norms[kSpike], 2 * one.gradient_norms[kSpike - 1]);
  EXPECT_GT(one.gradient_norms[kSpike], 2 * one.gradient_norms[kSpike + 1]);
  expect_close(many.losses, one.losses, 1e-5);
  expect_close(many.gradient_norms, one.gradient_norms, 1e-4);
  for (const Measured& other : {trained(rounded, "", 1, Recompute::none, kSpikedSteps),
                                trained(rounded, fields, 16, Recompute::selective, kSpikedSteps)}) {
    expect_close(other.losses, one.losses, 0x1p-8);
    expect_close(other.gradient_norms, one.gradient_norms, 0x1p-3);
    for (std::size_t step = 0; step < kSpikedSteps; ++step) {
      if (step == kSpike) continue;
      EXPECT_NEAR(other.gradient_norms[step], one.gradient_norms[step],
                  0x1p-6 * one.gradient_norms[step])
          << step;
    }
  }
}

}  // namespace
}  // namespace plimsoll
