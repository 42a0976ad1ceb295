// The learning rate warms up and decays, in every optimizer and layout of the update.
#include "runtime/rate_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/runtime/nano.h"
#include "tests/runtime/saved_training.h"

namespace plimsoll {
namespace {

TEST(RateFactor, RisesAndFalls) {
  EXPECT_EQ(rate_factor({}, 1), 1);
  EXPECT_EQ(rate_factor({}, 1e6), 1);
  const RateSchedule warm{.warmup = 4};
  EXPECT_EQ(rate_factor(warm, 1), 0.25);
  EXPECT_EQ(rate_factor(warm, 3), 0.75);
  EXPECT_EQ(rate_factor(warm, 4), 1);
  EXPECT_EQ(rate_factor(warm, 400), 1);
  const RateSchedule linear{4, 14, RateDecay::linear, 0.2};
  EXPECT_EQ(rate_factor(linear, 4), 1);
  EXPECT_DOUBLE_EQ(rate_factor(linear, 9), 0.6);
  EXPECT_EQ(rate_factor(linear, 14), 0.2);
  EXPECT_EQ(rate_factor(linear, 99), 0.2);
  const RateSchedule cosine{0, 12, RateDecay::cosine, 0};
  EXPECT_DOUBLE_EQ(rate_factor(cosine, 4), 0.5 * (1 + std::cos(std::numbers::pi / 3)));
  EXPECT_NEAR(rate_factor(cosine, 6), 0.5, 1e-15);
  EXPECT_EQ(rate_factor(cosine, 12), 0);
}

/// The parameters of rank 0 after some steps.
std::vector<float> parameters_after(std::int64_t steps, const Job& job, const RateSchedule& rates,
                                    const std::string& fields) {
  TrainOptions options = some_steps(steps);
  options.rates = rates;
  return train_nano(nano_programs(parse_strategy(fields), job), options, job).parameters[0];
}

TEST(RateOfUpdates, ScalesWhatTheyChange) {
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::lamb,
                                   OptimizerKind::muon, OptimizerKind::adafactor}) {
    for (const std::string fields : {"micro_batch=8", "micro_batch=8,flatten=none"}) {
      if (kind >= OptimizerKind::muon && fields == "micro_batch=8") continue;
      Job job = nano_job();
      job.optimizer.kind = kind;
      Job slow = job;
      slow.optimizer.learning_rate *= 0.25;
      // The first step of a warm-up of four is one with a quarter of the rate, to the bit.
      EXPECT_EQ(parameters_after(1, job, {.warmup = 4}, fields),
                parameters_after(1, slow, {}, fields));
      EXPECT_NE(parameters_after(1, job, {.warmup = 4}, fields),
                parameters_after(1, job, {}, fields));
      // Behind the decay nothing changes any more.
      const RateSchedule ends{0, 2, RateDecay::linear, 0};
      EXPECT_EQ(parameters_after(1, job, ends, fields), parameters_after(3, job, ends, fields));
    }
  }
}

TEST(RateOfUpdates, GoesOnWhereItWas) {
  const Job job = nano_job();
  const auto programs = nano_programs(parse_strategy("mp=2,micro_batch=8"), job);
  const ScratchFolder scratch;
  TrainOptions options = some_steps(3);
  options.rates = {2, 6, RateDecay::cosine, 0.1};
  options.save = save_in(scratch.path(), job);
  train_nano(programs, options, job);
  options.save.reset();
  options.steps = 6;
  const auto whole = train_nano(programs, options, job).parameters;
  options.steps = 3;
  options.resume = std::make_shared<SavedCheckpoint>(scratch.path());
  EXPECT_EQ(train_nano(programs, options, job).parameters, whole);
}

}  // namespace
}  // namespace plimsoll
