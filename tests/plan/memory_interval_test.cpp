// How wide intervals of memory are.
#include "plan/memory_interval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <optional>
#include <random>

namespace plimsoll {
namespace {

double width(MemoryKind kind, PredictedMemory memory, const char* framework = "megatron-lm") {
  return memory_half_width(kind, framework_by_name(framework), memory);
}

TEST(MemoryInterval, EachKindIsKnownWorseThanTheOneBefore) {
  const Bytes gib{std::int64_t{1} << 30};
  const PredictedMemory memory{gib, gib * 2, gib};
  for (const char* framework : {"megatron-lm", "torchtitan", "paddlenlp"}) {
    EXPECT_GT(width(MemoryKind::allocated, memory, framework), 0);
    EXPECT_GT(width(MemoryKind::reserved, memory, framework),
              width(MemoryKind::allocated, memory, framework));
    EXPECT_GT(width(MemoryKind::device, memory, framework),
              width(MemoryKind::reserved, memory, framework));
  }
}

TEST(MemoryInterval, OfAnArenaOnlyTheContextIsOpen) {
  const Bytes gib{std::int64_t{1} << 30};
  const PredictedMemory little{gib * 40, gib * 40, gib}, much{gib, gib, gib};
  EXPECT_EQ(width(MemoryKind::allocated, little, "bundled"), 0);
  EXPECT_EQ(width(MemoryKind::reserved, little, "bundled"), 0);
  EXPECT_GT(width(MemoryKind::device, little, "bundled"), 0);
  EXPECT_GT(width(MemoryKind::device, much, "bundled"),
            width(MemoryKind::device, little, "bundled"));
  EXPECT_EQ(width(MemoryKind::device, {}, "bundled"), 0);
}

StagePrediction stage_of(std::int64_t lasting, std::int64_t allocated, std::int64_t reserved,
                         std::int64_t capacity) {
  StagePrediction stage;
  stage.by_role[std::size_t(TensorRole::parameter)] = Bytes(lasting);
  stage.peak = stage.allocated = Bytes(allocated);
  stage.reserved = Bytes(reserved);
  stage.capacity = Bytes(capacity);
  return stage;
}

TEST(MemoryInterval, VerdictFollowsFromItsUpperEnd) {
  const Framework framework = framework_by_name("megatron-lm");
  const auto interval = [&](std::int64_t capacity, std::int64_t reserve) {
    const StagePrediction stages[] = {stage_of(10'000, 20'000, 30'000, 1'000'000),
                                      stage_of(600'000, 800'000, 850'000, capacity)};
    return memory_interval(stages, framework, Bytes(50'000), Bytes(reserve), std::nullopt);
  };
  const MemoryInterval memory = interval(1'000'000, 0);
  EXPECT_EQ(memory.taken, Bytes(900'000));  // of the fullest stage
  const PredictedMemory predicted{Bytes(800'000), Bytes(850'000), Bytes(50'000)};
  const double half = memory_half_width(MemoryKind::device, framework, predicted);
  EXPECT_NEAR(double(memory.high.count()), 900'000 * (1 + half), 1);
  EXPECT_NEAR(double(memory.low.count()), 900'000 * (1 - half), 1);
  EXPECT_EQ(interval(memory.high.count(), 0).verdict, MemoryVerdict::safe);
  EXPECT_EQ(interval(memory.high.count() - 1, 0).verdict, MemoryVerdict::tight);
  EXPECT_EQ(interval(900'000, 0).verdict, MemoryVerdict::tight);
  EXPECT_EQ(interval(900'000, 1).verdict, MemoryVerdict::does_not_fit);
  EXPECT_NEAR(interval(memory.high.count(), 0).overflow, 0.05, 1e-4);  // nine in ten lie within
  EXPECT_NEAR(interval(900'000, 0).overflow, 0.5, 1e-9);
  EXPECT_NEAR(interval(memory.low.count(), 0).overflow, 0.95, 1e-4);
  EXPECT_EQ(memory_interval({}, framework, Bytes(1), Bytes(1), std::nullopt), MemoryInterval());
}

TEST(MemoryInterval, OfAnArenaWithoutContextIsExact) {
  const StagePrediction stage = stage_of(1, 999, 1000, 1000);
  const MemoryInterval memory =
      memory_interval({&stage, 1}, bundled_framework(), Bytes(), Bytes(), std::nullopt);
  EXPECT_EQ(memory.low, memory.high);
  EXPECT_EQ(memory.verdict, MemoryVerdict::safe);
}

TEST(MemoryInterval, WhatWasLearnedMovesItAndTakesThePlaceOfTwoSpreads) {
  const Framework framework = framework_by_name("megatron-lm");
  const StagePrediction stage = stage_of(600'000, 800'000, 850'000, 1'000'000);
  const auto interval = [&](double factor) {
    return memory_interval({&stage, 1}, framework, Bytes(50'000), Bytes(),
                           LearnedMemory{factor, 0.01});
  };
  const MemoryInterval less = interval(0.8), more = interval(1.2);
  EXPECT_EQ(less.taken, Bytes(730'000));  // 0.8 x 850,000 and what is outside
  const double half = std::hypot(0.01, memory_spread().device);
  EXPECT_NEAR(double(less.high.count()), 730'000 * (1 + half), 1);
  EXPECT_EQ(less.verdict, MemoryVerdict::safe);
  EXPECT_EQ(more.taken, Bytes(1'070'000));
  EXPECT_EQ(more.verdict, MemoryVerdict::tight);  // the replay fits
  EXPECT_GT(more.overflow, 0.5);
}

TEST(MemoryInterval, TightMemoryCountsTheOddsOfAFailedStart) {
  const double run = rule_of(UnusualChoice::tight_memory).gain;
  EXPECT_DOUBLE_EQ(tight_memory(0.2).gain, 0.25 * run);
  EXPECT_DOUBLE_EQ(tight_memory(0.5).gain, run);
  EXPECT_DOUBLE_EQ(tight_memory(1).gain, run);  // it fits by prediction
}

// A search cuts strategies by this, so it must never be wrong.
TEST(MemoryInterval, WhatIsSurelyTightIsNotSafe) {
  std::mt19937_64 random(5);
  std::int64_t sure = 0, safe = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto below = [&](std::int64_t most) {
      return std::int64_t(random() % std::uint64_t(most));
    };
    const std::int64_t peak = 1 + below(1'000'000);
    const std::int64_t reserved = peak + below(peak / 5 + 1);
    const StagePrediction stage = stage_of(below(peak + 1), peak, reserved, 1'000'000);
    const Bytes outside(below(100'000));
    const std::optional<LearnedMemory> learned =
        i % 3 == 0 ? std::nullopt : std::optional(LearnedMemory{i % 3 == 1 ? 0.9 : 1.15, 0.05});
    for (const char* name : {"megatron-lm", "torchtitan", "bundled"}) {
      const Framework framework = framework_by_name(name);
      const MemoryInterval memory =
          memory_interval({&stage, 1}, framework, outside, Bytes(), learned);
      if (memory.verdict == MemoryVerdict::safe) {
        ++safe;
        EXPECT_EQ(least_overflow(stage.peak, stage.capacity, framework, outside, learned), 0);
      } else if (memory.verdict == MemoryVerdict::tight) {
        const double least =
            least_overflow(stage.peak, stage.capacity, framework, outside, learned);
        EXPECT_LE(least, memory.overflow * (1 + 1e-12));
        sure += least > 0;
      }
    }
  }
  EXPECT_GT(sure, 50);
  EXPECT_GT(safe, 1000);
}

}  // namespace
}  // namespace plimsoll
