// The update in all its forms: optimizers, attribute groups, loss scaling and flattening train the
// same model in the predicted bytes; steps with gradients that are not finite are skipped by all.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <mutex>

#include "passes/pipeline.h"
#include "runtime/cpu/backend.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/op_cases.h"
#include "tests/runtime/op_runner.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kSteps = 5;

TrainOptions options_of(std::int64_t steps) {
  TrainOptions options;
  options.steps = steps;
  options.warm_up_steps = 0;
  options.keep_parameters = true;
  return options;
}

/// Losses, norms and the parameters after the last step are the serial ones.
void expect_same_training(const Job& job, const Strategy& strategy, double tolerance) {
  SCOPED_TRACE(strategy_summary(strategy));
  const auto serial = nano_programs(nano_strategy("", 1, Recompute::none), job);
  const auto programs = nano_programs(strategy, job);
  const TrainResult expected = train_nano(serial, options_of(kSteps), job);
  const TrainResult found = train_nano(programs, options_of(kSteps), job);
  for (std::size_t step = 0; step < std::size_t(kSteps); ++step) {
    const double loss = expected.measured.losses[step];
    const double norm = expected.measured.gradient_norms[step];
    EXPECT_NEAR(found.measured.losses[step], loss, tolerance * loss) << step;
    EXPECT_NEAR(found.measured.gradient_norms[step], norm, tolerance * norm) << step;
  }
  EXPECT_NE(expected.measured.losses.front(), expected.measured.losses.back());
  EXPECT_EQ(found.measured.loss_scales, expected.measured.loss_scales);
  EXPECT_EQ(found.measured.skipped_steps, expected.measured.skipped_steps);
  expect_predicted_bytes(programs, found.measured);
  const WholeTensors one = put_together(serial, expected.parameters, false, 0);
  const WholeTensors many = put_together(programs, found.parameters, false, 0);
  for (const auto& [name, values] : one) {
    if (!many.contains(name)) ADD_FAILURE() << name.first;
    double largest = 0, difference = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(double(values[i])));
      difference = std::max(difference, std::abs(double(values[i]) - many.at(name)[i]));
    }
    EXPECT_LE(difference, 20 * tolerance * std::max(largest, 0.02)) << name.first;
  }
}

Job job_of(OptimizerKind kind) {
  Job job = nano_job();
  job.optimizer.kind = kind;
  job.optimizer.learning_rate = kind == OptimizerKind::adamw ? 1e-3 : 1e-2;
  job.optimizer.epsilon = 1e-6;  // a bias without gradient moves by its noise otherwise
  job.clip_norm = 0.5;
  return job;
}

Job grouped(Job job) {
  job.optimizer.groups = {
      {"bias", 0.0, false, {}}, {"embedding", 0.02, {}, 0.5}, {"layer.fc1.weight", {}, {}, 2.0}};
  check_job(job, "job");
  return job;
}

std::string kind_name(const testing::TestParamInfo<OptimizerKind>& info) {
  return info.param == OptimizerKind::adamw ? "adamw"
         : info.param == OptimizerKind::sgd ? "sgd"
                                            : "lamb";
}

class EveryUpdate : public testing::TestWithParam<OptimizerKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, EveryUpdate,
                         testing::Values(OptimizerKind::adamw, OptimizerKind::sgd,
                                         OptimizerKind::lamb),
                         kind_name);

TEST_P(EveryUpdate, IsTheSameOnAllAxes) {
  for (const std::string fields :
       {"mp=2", "pp=2", "sharding_degree=2", "mp=2,pp=2,sharding_degree=2"}) {
    expect_same_training(job_of(GetParam()), nano_strategy(fields, 2, Recompute::none), 1e-4);
  }
}

TEST_P(EveryUpdate, IsTheSameInEveryForm) {
  for (const std::string fields : {"flatten=none", "flatten=coalesced", "flatten=none,mp=2,pp=2",
                                   "flatten=coalesced,mp=2,pp=2,dp=2"}) {
    expect_same_training(job_of(GetParam()), nano_strategy(fields, 2, Recompute::none), 1e-4);
    expect_same_training(grouped(job_of(GetParam())), nano_strategy(fields, 2, Recompute::none),
                         1e-4);
  }
}

TEST_P(EveryUpdate, ScalesTheLossWithoutChangingTheModel) {
  Job job = grouped(job_of(GetParam()));
  job.loss_scale = LossScale{1024, 2, 0.5, 2};
  for (const std::string fields :
       {"", "mp=2,pp=2", "sharding_degree=2,dp=2", "flatten=none", "flatten=coalesced",
        "flatten=none,mp=2,pp=2", "flatten=coalesced,pp=2,dp=2"}) {
    expect_same_training(job, nano_strategy(fields, 2, Recompute::none), 1e-4);
  }
  const auto programs = nano_programs(nano_strategy("", 1, Recompute::none), job);
  const Measured measured = train_nano(programs, options_of(kSteps), job).measured;
  EXPECT_EQ(measured.loss_scales, (std::vector<double>{1024, 1024, 2048, 2048, 4096}));
  EXPECT_EQ(measured.skipped_steps, 0);
  job.loss_scale.reset();  // powers of two change no bit
  const auto plain = nano_programs(nano_strategy("", 1, Recompute::none), job);
  EXPECT_EQ(train_nano(plain, options_of(kSteps), job).measured.losses, measured.losses);
}

TEST(Update, WithoutClippingOrAnythingClipped) {
  Job job = job_of(OptimizerKind::adamw);
  job.clip_norm = 0;
  for (const std::string fields : {"flatten=none", "flatten=coalesced"}) {
    expect_same_training(job, nano_strategy(fields, 2, Recompute::none), 1e-4);
  }
  job.clip_norm = 1;
  for (const char* kind : {"weight", "bias", "norm", "embedding"})
    job.optimizer.groups.push_back({kind, {}, false, {}});
  for (const std::string fields : {"", "flatten=none", "flatten=coalesced"}) {
    const auto programs = nano_programs(nano_strategy(fields, 2, Recompute::none), job);
    const Measured measured = train_nano(programs, options_of(2), job).measured;
    EXPECT_EQ(measured.gradient_norms, (std::vector<double>{0, 0})) << fields;
  }
}

// ---- seeds 7.D ----

/// The CPU backend, except that `after` sees the operands of every kernel that ran.
using After = std::function<void(const Op& op, std::span<std::byte* const> in,
                                 std::span<std::byte* const> out, const RunPosition& position)>;
class WatchedKernel final : public Kernel {
 public:
  WatchedKernel(std::unique_ptr<Kernel> kernel, Op op, const After& after)
      : kernel_(std::move(kernel)), op_(std::move(op)), after_(after) {}
  void run(std::span<std::byte* const> in, std::span<std::byte* const> out,
           const RunPosition& position) override {
    kernel_->run(in, out, position);
    after_(op_, in, out, position);
  }

 private:
  std::unique_ptr<Kernel> kernel_;
  const Op op_;
  const After& after_;
};
class WatchedBackend final : public Backend {
 public:
  explicit WatchedBackend(After after) : after_(std::move(after)) {}
  std::string_view name() const override { return "watched"; }
  Verdict supports(const Op& op, std::span<const Tensor> tensors) const override {
    return cpu_->supports(op, tensors);
  }
  std::unique_ptr<Kernel> prepare(const Op& op, std::span<const Tensor> tensors,
                                  const RankContext& context) override {
    return std::make_unique<WatchedKernel>(cpu_->prepare(op, tensors, context), op, after_);
  }
  void enter_thread() override { cpu_->enter_thread(); }

 private:
  std::unique_ptr<Backend> cpu_ = make_cpu_backend();
  const After after_;
};

double sum_of(Backend& backend, const OpCase& c) {
  return run_case(backend, c)[c.op.outputs[0].index()][0];
}

Segment segment_of(std::int64_t offset, std::int64_t elements, double norm_weight) {
  Segment segment;
  segment.offset = offset;
  segment.elements = elements;
  segment.shape = {elements};
  segment.norm_weight = norm_weight;
  return segment;
}

OpCase norm_case(const std::vector<double>& gradients, std::vector<Segment> segments,
                 std::int64_t shards = 1) {
  Operand arena{"gradients", {std::int64_t(gradients.size())}, gradients};
  arena.arena = true;
  FlatParams params;
  params.shards = shards;
  OpCase c = make_case("norm", OpKind::squared_norm, params, {arena}, {{"sum", {1}, {}}});
  c.program.sharding_degree = shards;
  c.program.segments = std::move(segments);
  c.program.buckets = {{0, std::int64_t(gradients.size())}};
  return c;
}

TEST(SeedsD, D1_WhatAllMpRanksHoldCountsOnce) {
  const auto backend = make_backend("cpu");
  const std::vector<Segment> segments = {segment_of(0, 1, 1), segment_of(1, 1, 0.5)};
  const double first = sum_of(*backend, norm_case({2, std::sqrt(7)}, segments));
  const double second = sum_of(*backend, norm_case({std::sqrt(5), std::sqrt(7)}, segments));
  EXPECT_NEAR(first + second, 16, 1e-6);  // 23 where everybody counts all he has
  // And these are the weights that segments get.
  const auto programs = nano_programs(nano_strategy("mp=2", 1, Recompute::none));
  for (const Segment& segment : programs[0].segments) {
    EXPECT_EQ(segment.norm_weight, segment.split ? 1 : 0.5) << segment.parameter;
  }
}

TEST(SeedsD, D2_InfinityOnOneOwnerSkipsTheStepEverywhere) {
  Job job = job_of(OptimizerKind::adamw);
  job.loss_scale = LossScale{256, 2, 0.5, 100};
  for (const std::string fields : {"sharding_degree=2", "sharding_degree=2,mp=2", "pp=2",
                                   "flatten=none,mp=2,pp=2", "flatten=coalesced,pp=2"}) {
    SCOPED_TRACE(fields);
    const auto programs = nano_programs(nano_strategy(fields, 2, Recompute::none), job);
    std::mutex lock;
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<float>> scalars;  // rank, step
    TrainOptions options = options_of(2);  // the second one is skipped
    options.backend_of_rank = [&](std::int64_t rank) {
      return std::make_unique<WatchedBackend>(
          [&, rank](const Op& op, std::span<std::byte* const> in, std::span<std::byte* const> out,
                    const RunPosition& position) {
            if (op.kind == OpKind::bias_gradient && rank == 0 && position.step == 1)
              *reinterpret_cast<float*>(out[0]) = HUGE_VALF;
            if (op.kind != OpKind::adamw) return;
            const std::lock_guard guard(lock);
            const auto* at = reinterpret_cast<const float*>(in[4]);
            scalars[{rank, position.step}] = {at, at + kScalars};
          });
    };
    const TrainResult skipped = train_nano(programs, options, job);
    const TrainResult before = train_nano(programs, options_of(1), job);
    EXPECT_EQ(skipped.parameters, before.parameters);
    EXPECT_EQ(skipped.measured.loss_scales, (std::vector<double>{256, 256}));
    EXPECT_EQ(skipped.measured.skipped_steps, 1);
    EXPECT_EQ(std::int64_t(scalars.size()), 2 * programs[0].grid.world_size());
    for (const auto& [key, values] : scalars) {
      const bool second = key.second == 1;
      EXPECT_EQ(values[std::size_t(Scalar::found)], second ? 1 : 0) << "rank " << key.first;
      EXPECT_EQ(values[std::size_t(Scalar::step)], 1);
    }
    options.steps = 3;
    scalars.clear();
    EXPECT_EQ(train_nano(programs, options, job).measured.loss_scales,
              (std::vector<double>{256, 256, 128}));
    for (const auto& [key, values] : scalars) {
      EXPECT_EQ(values[std::size_t(Scalar::loss_scale)], key.second == 2 ? 128 : 256);
      EXPECT_EQ(values[std::size_t(Scalar::step)], key.second == 2 ? 2 : 1);
    }
  }
}

TEST(SeedsD, D3_GradientsOfTwoOwnersMakeOneNorm) {
  const auto backend = make_backend("cpu");
  const std::vector<Segment> segments = {segment_of(0, 1, 1), segment_of(1, 1, 1)};
  double sum = 0;
  for (const std::int64_t owner : {0, 1}) {
    OpCase c = norm_case({3, 4}, segments, 2);
    c.at[std::size_t(Axis::sharding)] = owner;
    EXPECT_EQ(sum_of(*backend, c), owner == 0 ? 9 : 16);
    sum += sum_of(*backend, c);
  }
  const Operand scalars{
      "scalars", {kScalars}, {1, 0, 0, 0, 1, 0, 0, 0}, DType::f32, TensorRole::scalar};
  const Values values = run_case(*backend, make_case("clip", OpKind::clip_factor, ClipParams{1},
                                                     {{"sum", {1}, {sum}}, scalars}, {scalars}));
  EXPECT_EQ(values[1][std::size_t(Scalar::gradient_norm)], 5);
  EXPECT_NEAR(values[1][std::size_t(Scalar::clip)], 0.2, 1e-7);
}

TEST(SeedsD, D4_PaddingThatIsNotANumberDoesNotReachTheNorm) {
  const auto backend = make_backend("cpu");
  const double nan = std::nan("");
  const std::vector<Segment> segments = {segment_of(0, 2, 1), segment_of(4, 3, 1)};
  EXPECT_EQ(sum_of(*backend, norm_case({1, 2, nan, nan, 3, 4, 5, nan}, segments)), 55);
  // The update gives equal values from squares in memory, and with a separate check.
  FlatParams group;
  group.group = 0;
  group.elements = 5;
  OpCase c = norm_case({1, 4, nan, nan, 9, 16, 25, nan}, segments);
  c.op.kind = OpKind::reduce_sum;
  c.op.params = group;
  EXPECT_EQ(sum_of(*backend, c), 55);
  const Operand scalars{
      "scalars", {kScalars}, {1, 0, 0, 0, 2, 0, 0, 0}, DType::f32, TensorRole::scalar};
  Operand gradients{"gradients", {8}, {2, 4, nan, nan, 6, 8, 10, nan}};
  gradients.arena = true;
  OpCase check = make_case("check", OpKind::check_finite, FlatParams{}, {gradients, scalars},
                           {gradients, {"flag", {1}, {}, DType::i32}});
  check.program = c.program;
  const Values values = run_case(*backend, check);
  EXPECT_EQ(values[2][0], 0);
  EXPECT_EQ(values[0][6], 5);
}

}  // namespace
}  // namespace plimsoll
