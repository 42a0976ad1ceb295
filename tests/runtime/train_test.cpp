// Training gpt-nano under every kind of strategy: bytes as predicted, the same model whatever the
// strategy, the same bits in two runs, and runs that end when a rank fails.
#include "runtime/command/train.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <thread>

#include "base/error.h"
#include "tests/runtime/hand_built.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/patience.h"

namespace plimsoll {
namespace {

using std::chrono::milliseconds;

const std::vector<std::string> kStrategies = {
    "", "mp=2", "pp=2", "dp=2", "sharding_degree=2,sharding_stage=1", "mp=2,pp=2", "dp=2,pp=2"};

const std::vector<std::int64_t> kMicroBatches = {1, 4};

std::string label(const Strategy& strategy) { return strategy_summary(strategy); }

class EveryStrategy : public testing::TestWithParam<std::tuple<std::string, Recompute>> {};

INSTANTIATE_TEST_SUITE_P(Nano, EveryStrategy,
                         testing::Combine(testing::ValuesIn(kStrategies),
                                          testing::Values(Recompute::none, Recompute::selective,
                                                          Recompute::full)));

// ---- memory ----

TEST_P(EveryStrategy, PeakBytesAreThePredictedOnes) {
  const auto& [fields, recompute] = GetParam();
  for (const std::int64_t micro_batches : kMicroBatches) {
    const Strategy strategy = nano_strategy(fields, micro_batches, recompute);
    SCOPED_TRACE(label(strategy));
    const std::vector<Program> programs = nano_programs(strategy);
    expect_predicted_bytes(programs, train_nano(programs, steps_of(2)).measured);
  }
}

TEST_P(EveryStrategy, CheckingFindsNothingAndChangesNoValue) {
  const auto& [fields, recompute] = GetParam();
  const Strategy strategy = nano_strategy(fields, 4, recompute);
  SCOPED_TRACE(label(strategy));
  const std::vector<Program> programs = nano_programs(strategy);
  TrainOptions options = steps_of(3);
  options.keep_parameters = true;
  const TrainResult plain = train_nano(programs, options);
  options.checking = true;
  const TrainResult checked = train_nano(programs, options);
  EXPECT_EQ(plain.measured.losses, checked.measured.losses);
  EXPECT_EQ(plain.parameters, checked.parameters);
  expect_predicted_bytes(programs, checked.measured, true);
}

/// A Remains has the results of one checked step, or the reason why it failed.
struct Remains {
  std::string error;
  std::vector<double> losses, norms;
  std::vector<std::vector<float>> parameters;
  bool operator==(const Remains&) const = default;  // NaN equals nothing
};
Remains one_checked_step(const std::vector<Program>& programs) {
  TrainOptions options = steps_of(1);
  options.checking = true;
  options.keep_parameters = true;
  try {
    TrainResult result = train_nano(programs, options);
    return {"", result.measured.losses, result.measured.gradient_norms, result.parameters};
  } catch (const std::runtime_error& error) {
    return {error.what(), {}, {}, {}};
  }
}

void expect_shortened_lifetimes_show(const Strategy& strategy) {
  const std::vector<Program> programs = nano_programs(strategy);
  const Remains right = one_checked_step(programs);
  ASSERT_EQ(right.error, "");
  ASSERT_EQ(right, one_checked_step(programs));
  int shortened = 0;
  for (std::size_t stage = 0; stage < programs.size(); ++stage) {
    for (std::size_t i = 0; i < programs[stage].buffers.size(); ++i) {
      const Buffer& buffer = programs[stage].buffers[i];
      if (buffer.persistent || buffer.end - buffer.begin < 2) continue;
      std::vector<Program> wrong = programs;
      wrong[stage].buffers[i].end -= 1;
      EXPECT_NE(one_checked_step(wrong), right)
          << "stage " << stage << ": buffer " << i << " " << buffer.name << " of calls ["
          << buffer.begin << ", " << buffer.end << ") is not read in its last call";
      ++shortened;
    }
  }
  EXPECT_GT(shortened, 10);
}

TEST(Lifetimes, ShorteningAnyOneShows) {
  expect_shortened_lifetimes_show(nano_strategy("", 2, Recompute::none));
}
TEST(Lifetimes, ShorteningAnyOneShowsUnderRecompute) {
  expect_shortened_lifetimes_show(nano_strategy("", 1, Recompute::full));
}

TEST(Lifetimes, ShorteningAnyOneShowsOnTwoStages) {
  expect_shortened_lifetimes_show(nano_strategy("pp=2", 2, Recompute::none));
}

// ---- the same model ----

void expect_same_model(const std::vector<Program>& serial, const std::vector<Program>& programs,
                       const Job& job) {
  TrainOptions options = steps_of(10);
  options.keep_gradients = true;
  const TrainResult expected = train_nano(serial, options, job);
  const TrainResult found = train_nano(programs, options, job);
  ASSERT_EQ(found.measured.losses.size(), 10u);
  for (std::size_t step = 0; step < 10; ++step) {
    const double loss = expected.measured.losses[step];
    const double norm = expected.measured.gradient_norms[step];
    EXPECT_GT(loss, 0);
    EXPECT_GT(norm, 0);
    EXPECT_NEAR(found.measured.losses[step], loss, 1e-4 * loss) << step;
    EXPECT_NEAR(found.measured.gradient_norms[step], norm, 1e-4 * norm) << step;
  }
  EXPECT_LT(found.measured.losses.back(), found.measured.losses.front());
  const WholeTensors one = put_together(serial, expected.gradients, true, 0);
  const WholeTensors many = put_together(programs, found.gradients, true, 1e-4);
  EXPECT_EQ(one.size(), many.size());
  for (const auto& [name, gradient] : one) {
    ASSERT_TRUE(many.contains(name)) << name.first << " of layer " << name.second;
    EXPECT_LE(relative_distance(many.at(name), gradient), 1e-4)
        << name.first << " of layer " << name.second;
  }
}

TEST_P(EveryStrategy, TrainsTheSameModel) {
  const auto& [fields, recompute] = GetParam();
  const auto serial = nano_programs(nano_strategy("", 1, Recompute::none));
  for (const std::int64_t micro_batches : kMicroBatches) {
    const Strategy strategy = nano_strategy(fields, micro_batches, recompute);
    SCOPED_TRACE(label(strategy));
    expect_same_model(serial, nano_programs(strategy), nano_job());
  }
}

TEST(SameModel, WithReplicasOfShards) {
  const auto serial = nano_programs(nano_strategy("", 1, Recompute::none));
  const Strategy strategy = nano_strategy("dp=2,sharding_degree=2", 2, Recompute::none);
  expect_same_model(serial, nano_programs(strategy), nano_job());
}

const std::vector<std::string> kOwned = {
    "sharding_degree=2,sharding_owner=prefix",
    "sharding_degree=2,sharding_owner=greedy,param_bucket_bytes=8KiB",
    "sharding_degree=4,sharding_owner=sorted_greedy,collective_fusion=none",
    "dp=2,sharding_degree=2,sharding_owner=prefix,collective_fusion=none",
    "dp=2,sharding_degree=2,sharding_owner=sorted_greedy",
    "mp=2,pp=2,sharding_degree=2,sharding_owner=greedy"};

TEST(SameModel, WithTensorsOwnedWhole) {
  for (const bool tied : {false, true}) {
    Job job = nano_job();
    job.tied_embeddings = tied;
    const auto serial = nano_programs(nano_strategy("", 1, Recompute::none), job);
    for (const std::string& fields : kOwned) {
      const Strategy strategy = nano_strategy(fields, 2, Recompute::none);
      SCOPED_TRACE(label(strategy) + (tied ? " tied" : ""));
      const auto programs = nano_programs(strategy, job);
      expect_same_model(serial, programs, job);
      expect_predicted_bytes(programs, train_nano(programs, steps_of(2), job).measured);
    }
  }
}

// A7: more ranks than the last stage has tensors to own. Its empty ranks count 0 in the norm,
// update nothing, and still take part in every reduction and broadcast.
TEST(SameModel, A7WithRanksThatOwnNothing) {
  const auto serial = nano_programs(nano_strategy("", 1, Recompute::none));
  const Strategy strategy =
      nano_strategy("sharding_degree=16,sharding_owner=prefix", 1, Recompute::none);
  const auto programs = nano_programs(strategy);
  std::int64_t empty = 0;
  for (const Program& program : programs) {
    empty += owned_elements(program) == 0;
    for (const Buffer& buffer : program.buffers) EXPECT_GT(buffer.bytes, Bytes(0));
  }
  EXPECT_GT(empty, 0);
  expect_same_model(serial, programs, nano_job());
  // With a finite check of its own, which has nothing to read there. Clipping would show in the
  // gradients.
  Job job = nano_job();
  job.clip_norm = 0;
  const auto unclipped = nano_programs(nano_strategy("", 1, Recompute::none), job);
  job.loss_scale = LossScale{};
  Strategy scaled = strategy;
  scaled.optimizer.flatten = Flatten::none;
  expect_same_model(unclipped, nano_programs(scaled, job), job);
}

TEST(SameModel, WithTiedEmbeddingsOnTwoStages) {
  Job job = nano_job();
  job.tied_embeddings = true;
  const auto serial = nano_programs(nano_strategy("", 1, Recompute::none), job);
  for (const std::string fields : {"pp=2", "pp=2,mp=2", "pp=2,sharding_degree=2", "pp=2,dp=2"}) {
    const Strategy strategy = nano_strategy(fields, 2, Recompute::none);
    SCOPED_TRACE(label(strategy));
    expect_same_model(serial, nano_programs(strategy, job), job);
  }
}

TEST(SameModel, WithAPaddedVocabularyOnEveryAxisAtOnce) {
  Job job = nano_job();
  job.vocab = 257;  // 129 rows on each of two ranks, one of them padding
  job.tied_embeddings = true;
  const auto serial = nano_programs(nano_strategy("", 1, Recompute::none), job);
  Strategy strategy = nano_strategy("mp=2,pp=2,dp=2,sharding_degree=2", 2, Recompute::none);
  strategy.pipeline.layer_split = {3, 1};
  strategy.pipeline.send_slots = 1;
  const auto programs = nano_programs(strategy, job);
  const Measured expected = train_nano(serial, steps_of(5), job).measured;
  const Measured found = train_nano(programs, steps_of(5), job).measured;
  for (std::size_t step = 0; step < 5; ++step) {
    EXPECT_NEAR(found.losses[step], expected.losses[step], 1e-4 * expected.losses[step]) << step;
    const double norm = expected.gradient_norms[step];
    EXPECT_NEAR(found.gradient_norms[step], norm, 1e-4 * norm) << step;
  }
  expect_predicted_bytes(programs, found);
}

TEST(TwoRuns, OfOnePlanAreBitwiseEqual) {
  for (const std::string& fields : kStrategies) {
    const Strategy strategy = nano_strategy(fields, 4, Recompute::none);
    SCOPED_TRACE(label(strategy));
    const std::vector<Program> programs = nano_programs(strategy);
    TrainOptions options = steps_of(5);
    options.keep_gradients = options.keep_parameters = true;
    const TrainResult first = train_nano(programs, options);
    const TrainResult second = train_nano(programs, options);
    EXPECT_EQ(first.measured.losses, second.measured.losses);
    EXPECT_EQ(first.measured.gradient_norms, second.measured.gradient_norms);
    EXPECT_EQ(first.gradients, second.gradients);
    EXPECT_EQ(first.parameters, second.parameters);
  }
}

// ---- what is measured ----

TEST(Measurement, HoldsEveryStepAndTheTracedOne) {
  const std::vector<Program> programs = nano_programs(nano_strategy("pp=2", 2, Recompute::none));
  TrainOptions options = steps_of(6);
  options.warm_up_steps = 2;
  std::vector<std::int64_t> reported;
  std::vector<double> losses;
  options.progress = [&](std::int64_t step, double loss, Seconds, double) {
    reported.push_back(step);
    losses.push_back(loss);
  };
  const Measured measured = train_nano(programs, options).measured;
  EXPECT_EQ(reported, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(losses, measured.losses);
  EXPECT_EQ(measured.losses.size(), 6u);
  EXPECT_EQ(measured.step_times.size(), 3u);  // without 2 warm-up steps and the traced one
  EXPECT_EQ(measured.backend, "cpu");
  EXPECT_EQ(measured.communicator, "local");
  EXPECT_GT(measured.resident, Bytes(0));

  Picoseconds first = measured.timeline.intervals[0].posted;
  std::array<std::size_t, 2> intervals = {};
  for (const Interval& interval : measured.timeline.intervals) {
    EXPECT_LE(interval.posted, interval.begin);
    EXPECT_LE(interval.begin, interval.end);
    first = std::min(first, interval.posted);
    ++intervals[std::size_t(interval.rank)];
  }
  EXPECT_GE(first, Picoseconds(0));
  for (std::size_t stage = 0; stage < 2; ++stage) {
    std::size_t ops = 0;
    for (const Call& call : programs[stage].calls)
      ops += programs[stage].at(call.routine).ops.size();
    EXPECT_EQ(intervals[stage], ops);
  }
  Picoseconds start = measured.timeline.memory[0].curve[0].time;
  for (const RankMemory& memory : measured.timeline.memory) {
    start = std::min(start, memory.curve[0].time);
    Bytes most;
    for (const MemoryPoint& point : memory.curve) {
      Bytes live;
      for (const Bytes bytes : point.by_role) live += bytes;
      most = std::max(most, live);
    }
    EXPECT_EQ(most, memory.peak);
  }
  EXPECT_EQ(start, Picoseconds(0));
}

TEST(Measurement, TheNullBackendWalksTheSameProgram) {
  const std::vector<Program> programs = nano_programs(nano_strategy("mp=2,pp=2", 4, {}));
  TrainOptions options = steps_of(3);
  options.backend = "null";
  const Measured measured = train_nano(programs, options).measured;
  EXPECT_EQ(measured.backend, "null");
  expect_predicted_bytes(programs, measured);
}

// ---- ranks that fail ----

/// Rank `bad` calls `what` once, when it has come to the first matmul of step 2.
TrainOptions failing(std::int64_t bad, const std::function<void()>& what) {
  TrainOptions options = steps_of(10);
  const auto called = std::make_shared<std::atomic<bool>>(false);
  options.backend_of_rank = [=](std::int64_t rank) {
    if (rank != bad) return make_backend("cpu");
    return make_watched_backend([=](const Op& op, const RunPosition& position) {
      if (op.kind == OpKind::matmul && position.step == 2 && !called->exchange(true)) what();
    });
  };
  return options;
}

TEST(Failures, ARankThatThrowsEndsTheRunWithItsReason) {
  for (const std::string fields : {"", "mp=2,pp=2"}) {
    const auto programs = nano_programs(nano_strategy(fields, 2, Recompute::none));
    const std::int64_t bad = programs[0].grid.world_size() - 1;
    const auto options = failing(bad, [] { throw std::runtime_error("the matmul is tired"); });
    try {
      train_nano(programs, options);
      FAIL() << "a rank threw";
    } catch (const EnvironmentError&) {
      FAIL() << "not the environment's fault";
    } catch (const std::runtime_error& error) {
      const std::string message = error.what();
      const std::string start = "rank " + std::to_string(bad) + " failed in step 3, routine ";
      EXPECT_EQ(message.substr(0, start.size()), start);
      EXPECT_NE(message.find(": the matmul is tired"), std::string::npos) << message;
    }
  }
}

/// Trains while rank `bad` stops in step 3, and returns the failure. The rank comes back
/// afterwards.
std::string failure_of_stopped(const std::vector<Program>& programs, std::int64_t bad,
                               milliseconds deadline) {
  const auto released = std::make_shared<std::atomic<bool>>(false);
  std::string message;
  {
    TrainOptions options = failing(bad, [released] { released->wait(false); });
    options.deadline = deadline;
    try {
      train_nano(programs, options);
    } catch (const EnvironmentError& error) {
      message = error.what();
    }
  }
  *released = true;
  released->notify_all();
  // The rank that was left behind in its kernel has its options until its thread is over.
  while (released.use_count() > 1) std::this_thread::yield();
  return message;
}

/// Expects these words in the failure, "{}" being `times` the deadline. On a slow machine a
/// deadline may pass where no rank has stopped, so longer ones are tried, too.
void expect_deadline_error(const std::string& fields, std::int64_t bad, int times,
                           const std::vector<std::string>& words) {
  const auto programs = nano_programs(nano_strategy(fields, 1, Recompute::none));
  std::string message;
  for (milliseconds deadline(100); deadline < kPatient; deadline *= 4) {
    message = failure_of_stopped(programs, bad, deadline);
    const double seconds = std::chrono::duration<double>(times * deadline).count();
    const bool all = std::ranges::all_of(words, [&](const std::string& word) {
      return message.find(fmt::format(fmt::runtime(word), seconds)) != message.npos;
    });
    if (all) return;
  }
  FAIL() << message;
}

TEST(Failures, ARankThatStopsForLongerThanTheDeadlineEndsTheRunAndIsLeftBehind) {
  expect_deadline_error("mp=2", 1, 1,
                        {"waited longer than the deadline of {} s in step 3, routine ",
                         "all_reduce of ", "rank 1 has not posted it"});
}

TEST(Failures, ARankThatHangsWhereNobodyWaitsForItEndsTheRun) {
  expect_deadline_error(
      "", 0, 2,
      {"rank 0 hangs in step 3, routine ", "nothing happened for {} s, 2 times the deadline"});
}

TEST(Failures, BeforeTheFirstStepNameTheRank) {
  const auto programs = nano_programs(nano_strategy("mp=2", 1, Recompute::none));
  TrainOptions options = steps_of(2);
  options.backend_of_rank = [](std::int64_t rank) -> std::unique_ptr<Backend> {
    class NoMatmul final : public Backend {
     public:
      std::string_view name() const override { return "no matmul"; }
      Verdict supports(const Op&, std::span<const Tensor>) const override { return Verdict::yes(); }
      std::unique_ptr<Kernel> prepare(const Op&, std::span<const Tensor>,
                                      const RankContext&) override {
        throw std::runtime_error("no kernels today");
      }
    };
    if (rank == 0) return make_backend("cpu");
    return std::make_unique<NoMatmul>();
  };
  try {
    train_nano(programs, options);
    FAIL() << "a rank threw";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "rank 1 failed before the first step: no kernels today");
  }
}

}  // namespace
}  // namespace plimsoll
