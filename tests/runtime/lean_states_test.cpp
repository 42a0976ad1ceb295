// Narrow states of the optimizer: parameters that are updated in 16 bits, rounded to the nearest or
// at random, and moments in 16 or 8 bits. Every strategy trains the model of one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "passes/pipeline.h"
#include "runtime/cpu/backend.h"
#include "runtime/half.h"
#include "runtime/random_rounding.h"
#include "runtime/state/moment_codes.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/op_cases.h"
#include "tests/runtime/op_runner.h"
#include "tests/runtime/optimizer_cases.h"
#include "tests/runtime/saved_training.h"

namespace plimsoll {
namespace {

// ---- codes of moments ----

TEST(MomentCodes, AreMiddlesOfTheDecadesParts) {
  const MomentCode& first = moment_code(true);
  const MomentCode& second = moment_code(false);
  EXPECT_TRUE(std::ranges::is_sorted(first));
  EXPECT_TRUE(std::ranges::is_sorted(second));
  EXPECT_FLOAT_EQ(first.front(), -(1 - 0.9 / 128));  // the last of 64 parts from 0.1 to 1
  EXPECT_FLOAT_EQ(first[127], 0);
  EXPECT_FLOAT_EQ(first[128], 0.55e-6);  // the only part from 1e-7 to 1e-6
  EXPECT_FLOAT_EQ(first.back(), 1);
  EXPECT_FLOAT_EQ(second.front(), 0);
  EXPECT_FLOAT_EQ(second[1], 0.325e-6);  // two parts
  EXPECT_FLOAT_EQ(second.back(), 1);
}

/// Values over several decades, whose largest one is negative in every second block.
std::vector<float> drawn_moment(bool negative, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<float> values;
  for (std::int64_t i = 0; i < kMomentBlock; ++i)
    values.push_back(float(normal(random) * std::pow(10.0, -double(i % 5))));
  const float largest = 1.5f * std::abs(*std::ranges::max_element(
                                   values, {}, [](float value) { return std::abs(value); }));
  values[17] = negative && seed % 2 == 0 ? -largest : largest;
  for (float& value : values) value = negative ? value : std::abs(value);
  return values;
}

TEST(MomentCodes, KeepABlockUpToTheWidthOfAPart) {
  for (const bool negative : {true, false}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const std::vector<float> values = drawn_moment(negative, seed);
      std::vector<std::byte> codes(values.size());
      const float scale = encode_moments(negative, values, codes.data());
      EXPECT_EQ(scale, std::abs(values[17]));
      std::vector<float> found(values.size());
      decode_moments(negative, codes.data(), scale, found);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double share = std::abs(double(values[i])) / scale;
        double bottom = 0.1, parts = negative ? 64 : 128;
        while (share < bottom && bottom > 1.5e-7) bottom /= 10, parts /= 2;
        // Half a part of its decade, or of the coarser one below.
        EXPECT_NEAR(found[i], values[i], scale * 9 * bottom / parts) << i;
      }
    }
  }
}

TEST(MomentCodes, KeptValuesGiveTheSameCodes) {
  for (const bool negative : {true, false}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const std::vector<float> values = drawn_moment(negative, seed);
      std::vector<std::byte> codes(values.size()), again(values.size());
      const float scale = encode_moments(negative, values, codes.data());
      std::vector<float> kept(values.size());
      decode_kept_moments(negative, codes.data(), scale, kept);
      EXPECT_EQ(encode_moments(negative, kept, again.data()), scale);
      EXPECT_EQ(again, codes);
    }
  }
}

TEST(MomentCodes, ShowValuesThatAreNoNumbers) {
  std::vector<float> values(16, 1.0f);
  values[3] = std::nanf("");
  std::vector<std::byte> codes(values.size());
  EXPECT_TRUE(std::isnan(encode_moments(true, values, codes.data())));
  std::ranges::fill(values, 0.0f);
  EXPECT_EQ(encode_moments(true, values, codes.data()), 0);
}

// ---- rounding at random ----

float stored(DType type, float value) {
  std::array<std::byte, sizeof(float)> bytes = {};
  from_f32(type, &value, bytes.data(), 1);
  to_f32(type, bytes.data(), &value, 1);
  return value;
}

TEST(RandomRounding, GivesNeighboursWhoseMeanIsTheValue) {
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const float value : {1.001f, -0.7003f, 0x1.ffcp0f, 3.1e-5f, -4.7e-7f, 1000.3f, 0.5f}) {
      double sum = 0, low = HUGE_VAL, high = -HUGE_VAL;
      constexpr std::uint32_t kWords = 1 << 16;
      for (std::uint32_t word = 0; word < kWords; ++word) {
        const float found = rounded_at_random(type, value, word * 0x10001u);
        ASSERT_EQ(found, stored(type, found)) << value;
        low = std::min<double>(low, found);
        high = std::max<double>(high, found);
        sum += found;
      }
      EXPECT_NEAR(sum / kWords, value, (high - low) / kWords) << to_text(type) << " " << value;
      EXPECT_LE(low, value);
      EXPECT_GE(high, value);
      EXPECT_LE(high - low, std::max(std::abs(value) * 0x1p-7, 0x1p-24));
    }
    EXPECT_EQ(rounded_at_random(type, HUGE_VALF, ~0u), HUGE_VALF);
    EXPECT_TRUE(std::isnan(rounded_at_random(type, std::nanf(""), ~0u)));
  }
}

TEST(RandomRounding, KeepsUpdatesThatTheNearestLoses) {
  const auto backend = make_cpu_backend();
  constexpr std::int64_t kCount = 1 << 18;
  const auto mean = [&](bool stochastic) {
    double sum = 0;
    const Values values = run_case(*backend, small_update(kCount, stochastic));
    for (const double value : values[0]) sum += value / kCount;
    return sum;
  };
  EXPECT_EQ(mean(false), 1);
  // A value moves by 2^-8 with a probability of 1 in 39: its deviation is 6e-4, that of the mean
  // 512 times less.
  EXPECT_NEAR(mean(true), 1 - 1e-4, 5e-6);
}

TEST(RandomRounding, IsTheSameForAPartOfTheTensor) {
  const auto backend = make_cpu_backend();
  constexpr std::int64_t kCount = 8192;
  const std::vector<double> whole = run_case(*backend, small_update(kCount, true))[0];
  const OpCase half = small_update(kCount / 2, true, 2);  // columns 32 to 63 of each row
  const std::vector<double> part = run_case(*backend, half)[0];
  std::size_t lower = 0;
  for (std::size_t i = 0; i < std::size_t(kCount) / 2; ++i) {
    EXPECT_EQ(part[i], whole[i / 32 * 64 + 32 + i % 32]) << i;
    lower += part[i] < 1 ? 1 : 0;
  }
  EXPECT_GT(lower, std::size_t(kCount) / 2 / 80);
  OpCase shard = small_update(kCount, true);
  shard.program.sharding_degree = 2;
  shard.program.grid.degree[std::size_t(Axis::sharding)] = 2;
  shard.at[std::size_t(Axis::sharding)] = 1;
  for (const std::size_t state : {2, 3}) shard.tensors[state].shape = {kCount / 2};
  for (const std::size_t state : {2, 3}) shard.before[state].resize(kCount / 2);
  const std::vector<double> own = run_case(*backend, shard)[0];
  for (std::size_t i = std::size_t(kCount) / 2; i < std::size_t(kCount); ++i)
    EXPECT_EQ(own[i], whole[i]) << i;
}

// ---- training ----

Job narrow_job(DType type) {
  Job job = nano_job();
  job.precision = type;
  job.optimizer.epsilon = 1e-6;
  if (type == DType::f16) job.loss_scale = LossScale{.initial = 0x1p14};
  return job;
}

std::vector<Program> programs_of(const std::string& fields, const std::string& types,
                                 const Job& job) {
  return nano_programs(
      nano_strategy(fields.empty() ? types : fields + "," + types, 2, Recompute::none), job);
}

constexpr const char* kTypes[] = {
    "main_parameter_type=none",
    "main_parameter_type=none,moment_type=bf16,gradient_type=computed,main_gradient_type=computed",
    "main_parameter_type=none,moment_type=bf16,stochastic_rounding=true",
    "main_parameter_type=none,moment_type=block8,stochastic_rounding=true,"
    "gradient_type=computed,main_gradient_type=computed",
    "moment_type=bf16",
    "moment_type=block8",
    "gradient_type=computed,main_gradient_type=computed",
};

class LeanStates : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Types, LeanStates, testing::ValuesIn(kTypes),
                         [](const auto& info) { return "types" + std::to_string(info.index); });

TEST_P(LeanStates, TrainTheModelOfOneRankInThePredictedBytes) {
  constexpr std::size_t kSteps = 4;
  const std::pair<DType, std::vector<std::string>> runs[] = {
      {DType::bf16, {"mp=2,pp=2", "pp=2,dp=2", "mp=2,sharding_degree=2,sharding_stage=3"}},
      {DType::f16, {"sharding_degree=2,sharding_stage=2"}}};
  for (const auto& [type, splits] : runs) {
    const Job job = narrow_job(type);
    const auto one = train_nano(programs_of("", GetParam(), job), steps_of(kSteps), job);
    EXPECT_LT(one.measured.losses.back(), one.measured.losses.front());
    for (const std::string& fields : splits) {
      SCOPED_TRACE(fields);
      const auto programs = programs_of(fields, GetParam(), job);
      const auto many = train_nano(programs, steps_of(kSteps), job);
      for (std::size_t step = 0; step < kSteps; ++step)
        EXPECT_NEAR(many.measured.losses[step], one.measured.losses[step],
                    0x1p-8 * one.measured.losses[step])
            << step;
      expect_predicted_bytes(programs, many.measured);
    }
  }
}

// Shards have the blocks, and the random words, that replicas have. Stage 3 reduces in every
// micro-batch.
TEST_P(LeanStates, ShardsTrainToTheBit) {
  Job job = narrow_job(DType::bf16);
  job.clip_norm = 0;  // shards add up the norm in another order
  const auto losses = [&](const char* fields) {
    return train_nano(programs_of(fields, GetParam(), job), steps_of(3), job).measured.losses;
  };
  EXPECT_EQ(losses("sharding_degree=2,sharding_stage=1"), losses("dp=2"));
  EXPECT_EQ(losses("sharding_degree=2,sharding_stage=3"),
            losses("dp=2,grad_reduction=per_micro_batch"));
}

TEST_P(LeanStates, GoOnWithTheSameBits) {
  const Job job = narrow_job(DType::bf16);
  for (const char* fields : {"", "mp=2,sharding_degree=2,sharding_stage=3"}) {
    const auto programs = programs_of(fields, GetParam(), job);
    const auto [whole, resumed] = continue_training(programs, job);
    const std::vector<double>& losses = whole.measured.losses;
    EXPECT_EQ(resumed.measured.losses, std::vector<double>(losses.begin() + 2, losses.end()));
    EXPECT_EQ(resumed.parameters, whole.parameters);
  }
}

// Where no tensor is split otherwise, blocks are the same ones, so the state is kept to the bit.
TEST_P(LeanStates, GoOnWithOtherShards) {
  const Job job = narrow_job(DType::bf16);
  const ScratchFolder first;
  TrainOptions options = some_steps(3);
  options.save = save_in(first.path(), job);
  train_nano(programs_of("sharding_degree=2,sharding_stage=1", GetParam(), job), options, job);
  for (const char* fields : {"sharding_degree=4,sharding_stage=3", "pp=2", ""}) {
    const ScratchFolder copied;
    copy_through(programs_of(fields, GetParam(), job), first.path(), copied.path());
    EXPECT_EQ(saved_values(copied.path()), saved_values(first.path())) << fields;
  }
  const auto whole = train_nano(programs_of("", GetParam(), job), some_steps(6), job);
  const auto split = go_on(programs_of("mp=2,pp=2", GetParam(), job), job, first.path(), 6);
  for (std::size_t i = 0; i < 3; ++i) {
    const double loss = whole.measured.losses[3 + i];
    EXPECT_NEAR(split.measured.losses[i], loss, 0x1p-7 * loss);
  }
}

TEST(LeanStates, SmallUpdatesTrainOnlyIfRoundedAtRandom) {
  Job job = narrow_job(DType::bf16);
  job.optimizer.learning_rate = 2e-5;  // most weights have neighbours farther away
  const auto fall = [&](const char* types) {
    const auto losses = train_nano(programs_of("", types, job), steps_of(30), job).measured.losses;
    return losses.front() - losses.back();
  };
  const double masters = fall("mp=1"), nearest = fall("main_parameter_type=none"),
               random = fall("main_parameter_type=none,stochastic_rounding=true");
  EXPECT_GT(masters, 0);
  EXPECT_LT(nearest, 0.8 * masters);
  EXPECT_LT(std::abs(random - masters), 0.4 * (masters - nearest)) << random << " " << masters;
}

}  // namespace
}  // namespace plimsoll
