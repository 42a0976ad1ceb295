// The loss of a text that is held out is that of the parameters behind the step, and computing it
// changes nothing.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/runtime/nano.h"
#include "tests/runtime/saved_training.h"

namespace plimsoll {
namespace {

struct Seen {
  std::vector<double> held_out;
  TrainResult result;
};
Seen train_and_hold_out(const Job& job, const std::string& fields, std::int64_t steps,
                        std::optional<HeldOut> held_out) {
  Seen seen;
  TrainOptions options = some_steps(steps);
  options.held_out = std::move(held_out);
  options.progress = [&](std::int64_t, double, Seconds, double loss) {
    seen.held_out.push_back(loss);
  };
  seen.result = train_nano(nano_programs(parse_strategy(fields), job), options, job);
  return seen;
}

Job sigmoid_job() {
  Job job = read_job(tests_folder() / "expert-nano.json");
  job.experts->score = RouterScore::sigmoid;
  job.experts->selection_bias = 0.01;
  return job;
}

void expect_nothing_changes(const Job& job, const std::string& fields) {
  SCOPED_TRACE(fields);
  const Seen without = train_and_hold_out(job, fields, 4, std::nullopt);
  const Seen with = train_and_hold_out(job, fields, 4, HeldOut{nano_text(), 2, 3});
  EXPECT_EQ(with.result.measured.losses, without.result.measured.losses);
  EXPECT_TRUE(
      same_numbers(with.result.measured.gradient_norms, without.result.measured.gradient_norms));
  EXPECT_EQ(with.result.measured.loss_scales, without.result.measured.loss_scales);
  EXPECT_EQ(with.result.parameters, without.result.parameters);
  ASSERT_EQ(with.held_out.size(), 4u);
  EXPECT_TRUE(std::isnan(with.held_out[0]) && std::isnan(with.held_out[2]));
  EXPECT_LT(with.held_out[3], with.held_out[1]);  // it learns
}

TEST(HeldOutText, ChangesNothing) {
  for (const std::string fields :
       {"micro_batch=4", "mp=2,micro_batch=4", "pp=2,micro_batch=2", "flatten=none,micro_batch=4",
        "flatten=coalesced,micro_batch=4", "sharding_degree=2,sharding_stage=3,micro_batch=4",
        "sharding_degree=2,sharding_stage=1,sharding_owner=greedy,micro_batch=4"})
    expect_nothing_changes(nano_job(), fields);
  Job unclipped_job = nano_job();
  unclipped_job.clip_norm = 0;
  for (const std::string fields :
       {"micro_batch=16,release_gradients=true",
        "sharding_degree=2,sharding_stage=3,micro_batch=8,release_gradients=true"})
    expect_nothing_changes(unclipped_job, fields);
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::lamb}) {
    Job job = nano_job();
    job.optimizer.kind = kind;
    if (kind == OptimizerKind::sgd) job.optimizer.learning_rate = 0.1;
    expect_nothing_changes(job, "dp=2,micro_batch=4");
  }
  for (const OptimizerKind kind : {OptimizerKind::muon, OptimizerKind::adafactor}) {
    Job job = nano_job();
    job.optimizer.kind = kind;
    expect_nothing_changes(job, "mp=2,micro_batch=4,flatten=none");
  }
  Job half = nano_job();
  half.precision = DType::f16;
  half.loss_scale = LossScale{1024, 2, 0.5, 2};
  expect_nothing_changes(half, "mp=2,micro_batch=4");
}

TEST(HeldOutText, ChangesNoSelectionBias) {
  const Seen without = train_and_hold_out(sigmoid_job(), "dp=2,ep=2", 6, std::nullopt);
  const Seen with = train_and_hold_out(sigmoid_job(), "dp=2,ep=2", 6, HeldOut{nano_text(), 1, 2});
  EXPECT_EQ(with.result.measured.losses, without.result.measured.losses);
  EXPECT_EQ(with.result.parameters, without.result.parameters);
}

TEST(HeldOutText, HasTheLossOfTheNextStepOnTheSameText) {
  // Held out is what the third step reads: its loss is known before it is made.
  const Job job = nano_job();
  const std::int64_t batch = job.global_batch * job.sequence;
  const auto& text = nano_text();
  const std::int64_t starts = std::int64_t(text.size()) - job.sequence - 1;
  ASSERT_LT(3 * batch, starts);
  const std::vector<std::byte> third(text.begin() + 2 * batch, text.end());
  for (const std::string fields : {"micro_batch=4", "cp=2,mp=2,micro_batch=4"}) {
    const Seen seen = train_and_hold_out(job, fields, 3, HeldOut{third, 2, 1});
    EXPECT_EQ(float(seen.held_out[1]), float(seen.result.measured.losses[2])) << fields;
  }
}

TEST(HeldOutText, HasNoDropout) {
  Job job = nano_job();
  Job without = job;
  job.dropout = 0.5;
  // No update: both have the initial parameters behind the first step.
  job.optimizer.learning_rate = without.optimizer.learning_rate = 1e-30;
  const Seen seen = train_and_hold_out(job, "micro_batch=4", 1, HeldOut{nano_text(), 1, 1});
  const Seen plain = train_and_hold_out(without, "micro_batch=4", 1, HeldOut{nano_text(), 1, 1});
  EXPECT_EQ(seen.held_out, plain.held_out);
  EXPECT_NE(seen.result.measured.losses, plain.result.measured.losses);
  EXPECT_NEAR(plain.held_out[0], plain.result.measured.losses[0], 1e-4);
}

}  // namespace
}  // namespace plimsoll
