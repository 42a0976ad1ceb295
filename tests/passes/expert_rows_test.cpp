// The room for experts' rows is all rows that can come, or holds by the exact binomial tail. Ranks
// of mp split tokens if experts have ranks of their own.
#include "passes/strategy/expert_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace plimsoll {
namespace {

Job mixture(std::int64_t count, std::int64_t chosen) {
  Job job = read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/expert-nano.json");
  job.experts->count = count;
  job.experts->chosen = chosen;
  return job;
}

Strategy shared_by(std::int64_t ep, std::int64_t micro_batch = 1) {
  Strategy strategy;
  strategy.dp = strategy.ep = ep;
  strategy.micro_batch = micro_batch;
  return strategy;
}

const Framework& megatron() { return framework_by_name("megatron-lm"); }

/// Returns the natural logarithm of the probability of at least `least` hits of `draws`.
double log_tail(double draws, double p, double least) {
  double sum = 0, largest = 0;
  for (double hits = least; hits <= draws; ++hits) {
    const double term = std::lgamma(draws + 1) - std::lgamma(hits + 1) -
                        std::lgamma(draws - hits + 1) + hits * std::log(p) +
                        (draws - hits) * std::log1p(-p);
    if (hits == least) largest = term;
    sum += std::exp(term - largest);
    if (term < largest - 40) break;
  }
  return largest + std::log(sum);
}

TEST(ExpertRows, PlannedMemoryHasRoomForAllRowsThatCanCome) {
  const auto percent = [](std::int64_t count, std::int64_t chosen, std::int64_t ep) {
    const RowsRoom room = rows_room(mixture(count, chosen), bundled_framework(), shared_by(ep));
    EXPECT_EQ(room.basis, RoomBasis::all_rows);
    return room.percent;
  };
  EXPECT_EQ(percent(8, 2, 4), 400);      // both experts of a token at one of 4 ranks
  EXPECT_EQ(percent(8, 3, 4), 267);      // 2 of 3, for the rank has no third
  EXPECT_EQ(percent(8, 2, 8), 400);      // 1 of 2 at one of 8 ranks
  EXPECT_EQ(percent(128, 8, 8), 800);    // all 8
  EXPECT_EQ(percent(128, 8, 32), 1600);  // 4 of 8 at one of 32
}

TEST(ExpertRows, AStatedPercentHolds) {
  Strategy strategy = shared_by(4);
  strategy.experts.rows_percent = 150;
  const RowsRoom room = rows_room(mixture(8, 2), bundled_framework(), strategy);
  EXPECT_EQ(room.percent, 150);
  EXPECT_EQ(room.basis, RoomBasis::stated);
  strategy.experts.rows_percent = 99;
  EXPECT_NE(legal(mixture(8, 2), strategy, 4).reason().find("expert_rows_percent 99"),
            std::string::npos);
}

// The sum over layers, ranks and micro-batches of the exact tails keeps the stated probability, and
// the room is not much larger than that needs.
TEST(ExpertRows, LikelyRoomKeepsTheStatedProbability) {
  for (const std::int64_t count : {8, 64, 128}) {
    for (const std::int64_t ep : {2, 8}) {
      for (const std::int64_t micro_batch : {1, 8, 64}) {
        Job job = mixture(count, 4);
        job.layers = 24;
        job.sequence = 512;
        job.experts->load = 1;
        const RowsRoom room = rows_room(job, megatron(), shared_by(ep, micro_batch));
        ASSERT_EQ(room.basis, RoomBasis::likely);
        // The rows of all 24 layers lie in one allocator.
        const double draws = double(24 * micro_batch * job.sequence * ep * 4), p = 1 / double(ep);
        const double log_events = std::log(double(ep) * kMicroBatchesOfRun);
        const auto log_chance = [&](double percent) {
          return log_events + log_tail(draws, p, std::floor(draws * p * percent / 100) + 1);
        };
        EXPECT_LE(log_chance(double(room.percent)), -std::log(kRunsForOverflow));
        const double least = 100 + (double(room.percent) - 100) * 0.8 - 5;
        if (least > 100) {
          EXPECT_GT(log_chance(least), -std::log(kRunsForOverflow)) << room.percent;
        }
      }
    }
  }
}

TEST(ExpertRows, SmallBatchesAreLessEven) {
  const Job job = mixture(8, 2);
  std::int64_t before = most_rows_percent(*job.experts, 4);
  for (const std::int64_t micro_batch : {1, 16, 256, 65536}) {
    const std::int64_t percent = rows_room(job, megatron(), shared_by(4, micro_batch)).percent;
    EXPECT_LE(percent, before);
    before = percent;
  }
  // Chance adds next to nothing to the load that the job states.
  EXPECT_EQ(before, 115);
}

TEST(ExpertRows, AJobThatDropsRowsNeedsNoRoomForAll) {
  Job job = mixture(8, 2);
  job.experts->drop_overflow = true;
  const RowsRoom room = rows_room(job, bundled_framework(), shared_by(4, 256));
  EXPECT_EQ(room.basis, RoomBasis::likely);
  EXPECT_LT(room.percent, 400);
}

TEST(ExpertRules, TokensAreSplitIfExpertsHaveRanksOfTheirOwn) {
  EXPECT_TRUE(parse_strategy("mp=2,dp=2,ep=2").tokens.sequence_parallel);
  EXPECT_TRUE(strategy_from_json_text(R"({"mp": 2, "etp": 1})", "text").tokens.sequence_parallel);
  for (const char* other :
       {"mp=2", "dp=2,ep=2", "mp=2,etp=2", "mp=2,dp=2,ep=2,sequence_parallel=false"})
    EXPECT_FALSE(parse_strategy(other).tokens.sequence_parallel) << other;
}

}  // namespace
}  // namespace plimsoll
