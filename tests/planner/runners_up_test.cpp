// Runners-up: which losers are shown, and what is said of them.
#include "planner/runners_up.h"

#include <gtest/gtest.h>

#include <numeric>

namespace plimsoll {
namespace {

Candidate candidate(std::int64_t mp, double seconds, std::int64_t peak, std::string programs) {
  Candidate c;
  c.strategy.mp = mp;
  c.score.prediction.step_time = Seconds(seconds);
  c.score.prediction.breakdown.forward = Seconds(seconds);
  c.score.prediction.stages = {{0, Bytes(peak), {}, Bytes(peak), Bytes(1000)}};
  c.score.peak = Bytes(peak);
  c.score.fits = peak <= 1000;
  c.programs = std::move(programs);
  return c;
}

TEST(RunnersUp, OrderOfMerit) {
  const Candidate fast = candidate(1, 1, 900, "a"), slow = candidate(1, 2, 100, "b");
  const Candidate leaner = candidate(1, 1, 800, "c");
  Candidate too_big = candidate(1, 0.5, 2000, "d");
  EXPECT_TRUE(better(fast, slow));
  EXPECT_TRUE(better(leaner, fast));
  EXPECT_TRUE(better(slow, too_big));
  EXPECT_FALSE(better(fast, fast));
  // What does not fit is ordered by its arena, which is known without simulating.
  Candidate bigger = candidate(1, 0.1, 3000, "e"), endless = fast;
  too_big.score.arena = Bytes(2000), bigger.score.arena = Bytes(3000);
  endless.too_long = "one step would take a year";
  EXPECT_TRUE(better(too_big, bigger));
  EXPECT_TRUE(better(bigger, endless));
}

TEST(RunnersUp, WhatTakesTooLongIsNotShown) {
  std::vector<Candidate> candidates = {candidate(1, 1, 100, "a"), candidate(1, 2, 100, "b"),
                                       candidate(2, 3, 100, "c")};
  candidates[2].too_long = "one step would take a year";
  EXPECT_EQ(choose_runners_up(candidates, std::vector<std::size_t>{0, 1, 2}),
            (std::vector<std::size_t>{1}));
}

TEST(RunnersUp, FiveNextThenBestOfOtherSplits) {
  std::vector<Candidate> candidates;
  for (int i = 0; i < 8; ++i)
    candidates.push_back(candidate(1, 1 + i, 100, "a" + std::to_string(i)));
  candidates.push_back(candidate(2, 20, 100, "b"));
  candidates.push_back(candidate(2, 21, 100, "b2"));
  candidates.push_back(candidate(4, 30, 100, "c"));
  std::vector<std::size_t> ranked(candidates.size());
  std::iota(ranked.begin(), ranked.end(), std::size_t{0});
  EXPECT_EQ(choose_runners_up(candidates, ranked),
            (std::vector<std::size_t>{1, 2, 3, 4, 5, 8, 10}));
}

TEST(RunnersUp, EqualProgramsAreShownOnce) {
  const std::vector<Candidate> candidates = {candidate(1, 1, 100, "a"), candidate(1, 1, 100, "a"),
                                             candidate(1, 2, 100, "b"), candidate(1, 2, 100, "b")};
  const std::vector<std::size_t> ranked = {0, 1, 2, 3};
  EXPECT_EQ(choose_runners_up(candidates, ranked), (std::vector<std::size_t>{2}));
}

TEST(RunnersUp, NamesTheTermThatGrowsMost) {
  const Candidate best = candidate(1, 1, 100, "a");
  Candidate loser = best;
  loser.score.prediction.step_time = Seconds(1.5);
  loser.score.prediction.breakdown.forward = Seconds(0.9);
  loser.score.prediction.breakdown.bubble = Seconds(0.4);
  loser.score.prediction.breakdown.exposed_communication = Seconds(0.2);
  const RunnerUp result = runner_up(loser, best, Bytes(0));
  EXPECT_EQ(result.term, "bubble");
  EXPECT_DOUBLE_EQ(result.term_time.value(), 0.4);
}

TEST(RunnersUp, WhatDoesNotFitLosesByItsBytes) {
  const RunnerUp result =
      runner_up(candidate(1, 0.5, 1500, "b"), candidate(1, 1, 100, "a"), Bytes(10));
  EXPECT_FALSE(result.fits);
  EXPECT_EQ(result.term, "memory");
  EXPECT_EQ(result.term_bytes, Bytes(510));
}

TEST(RunnersUp, EqualTimeLosesByBytesOrByOrder) {
  const Candidate best = candidate(1, 1, 100, "a");
  const RunnerUp heavier = runner_up(candidate(1, 1, 164, "b"), best, Bytes(0));
  EXPECT_EQ(heavier.term, "memory");
  EXPECT_EQ(heavier.term_bytes, Bytes(64));
  EXPECT_EQ(runner_up(candidate(1, 1, 100, "c"), best, Bytes(0)).term, "tie");
}

}  // namespace
}  // namespace plimsoll
