// How wide intervals of memory are.
#include "plan/memory_interval.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

double width(MemoryKind kind, PredictedMemory memory, const char* framework = "megatron-lm") {
  return memory_half_width(kind, framework_by_name(framework), memory);
}

TEST(MemoryInterval, WhatLastsIsKnownBetterThanWhatPasses) {
  const Bytes gib{std::int64_t{1} << 30};
  const PredictedMemory lasting{gib, gib, gib, {}}, half{gib * 2, gib, gib * 2, {}};
  const PredictedMemory passing{gib, {}, gib, {}};
  EXPECT_EQ(width(MemoryKind::allocated, lasting), 0);
  EXPECT_GT(width(MemoryKind::allocated, half), 0);
  EXPECT_LT(width(MemoryKind::allocated, half), width(MemoryKind::allocated, passing) / 2);
  EXPECT_GT(width(MemoryKind::reserved, half), width(MemoryKind::allocated, half));
}

TEST(MemoryInterval, PoolsOfShardedModulesAreKnownWorse) {
  const Bytes gib{std::int64_t{1} << 30};
  const PredictedMemory half{gib * 2, gib, gib * 2, {}};
  EXPECT_EQ(width(MemoryKind::allocated, half, "torchtitan"),
            width(MemoryKind::allocated, half, "pytorch-fsdp"));
  EXPECT_GT(width(MemoryKind::reserved, half, "torchtitan"),
            width(MemoryKind::reserved, half, "pytorch-fsdp"));
}

TEST(MemoryInterval, ContextIsKnownWorstAndArenasExactly) {
  const Bytes gib{std::int64_t{1} << 30};
  const PredictedMemory little{gib * 40, gib * 30, gib * 40, gib}, much{gib, gib, gib, gib};
  EXPECT_GT(width(MemoryKind::device, much), width(MemoryKind::device, little));
  EXPECT_EQ(width(MemoryKind::allocated, little, "bundled"), 0);
  EXPECT_EQ(width(MemoryKind::reserved, little, "bundled"), 0);
  EXPECT_GT(width(MemoryKind::device, little, "bundled"), 0);
  EXPECT_EQ(width(MemoryKind::device, {}, "bundled"), 0);
}

}  // namespace
}  // namespace plimsoll
