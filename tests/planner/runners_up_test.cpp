// Runners-up: which losers are shown, and what is said of them.
#include "planner/explore/runners_up.h"

#include <gtest/gtest.h>

#include <vector>

namespace plimsoll {
namespace {

/// A plan of its own split.
Candidate candidate(std::size_t index, double seconds, std::int64_t peak) {
  Candidate c;
  c.index = index;
  c.strategy.mp = std::int64_t(index) + 1;
  c.prediction.step_time = Seconds(seconds);
  c.prediction.breakdown.forward = Seconds(seconds);
  StagePrediction stage;
  stage.peak = Bytes(peak);
  c.prediction.stages = {stage};
  c.fits = peak <= 1000;
  return c;
}

TEST(RunnersUp, OrderOfMerit) {
  const Candidate fast = candidate(5, 1, 900);
  EXPECT_TRUE(better(fast, candidate(1, 2, 100)));
  EXPECT_TRUE(better(candidate(6, 1, 800), fast));
  EXPECT_TRUE(better(candidate(4, 1, 900), fast));
  EXPECT_FALSE(better(fast, fast));
}

TEST(RunnersUp, FiveNextOfWhatFitsInTime) {
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < 9; ++i) candidates.push_back(candidate(i, 9 - double(i), 100));
  candidates[8].fits = false;
  candidates[7].too_long = true;
  EXPECT_EQ(best_plans(candidates), (std::vector<std::size_t>{6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(best_plans({}), std::vector<std::size_t>{});
}

TEST(RunnersUp, TheSameWithOtherDetailsIsNoRunnerUp) {
  std::vector<Candidate> candidates = {candidate(0, 1, 100), candidate(1, 1.5, 100),
                                       candidate(2, 2, 100)};
  candidates[1].strategy = candidates[0].strategy;
  candidates[1].strategy.gradients.bucket_bytes = Bytes(1 << 20);
  EXPECT_EQ(best_plans(candidates), (std::vector<std::size_t>{0, 2}));
}

TEST(ParetoFront, IsWhatNothingBeatsInBoth) {
  const std::vector<Candidate> candidates = {
      candidate(0, 1.0, 900),                            // the best
      candidate(1, 1.0, 950),                            // as fast, heavier
      candidate(2, 1.2, 700), candidate(3, 1.2, 700),    // equal, later
      candidate(4, 1.3, 800),                            // slower and heavier than 2
      candidate(5, 1.4, 600), candidate(6, 1.41, 2000),  // does not fit
      candidate(7, 1.6, 100),                            // too slow to be of interest
  };
  EXPECT_EQ(pareto_front(candidates), (std::vector<std::size_t>{0, 2, 5}));
}

TEST(RunnersUp, NamesTheTermThatGrowsMost) {
  const Candidate best = candidate(0, 1, 100);
  Candidate loser = best;
  loser.prediction.step_time = Seconds(1.5);
  loser.prediction.breakdown.forward = Seconds(0.9);
  loser.prediction.breakdown.bubble = Seconds(0.4);
  loser.prediction.breakdown.exposed_communication = Seconds(0.2);
  const RunnerUp result = runner_up(loser, loser.prediction, best.prediction);
  EXPECT_EQ(result.term, LossTerm::bubble);
  EXPECT_DOUBLE_EQ(result.term_time.value(), 0.4);
}

TEST(RunnersUp, UnusualChoicesCountAgainstPlans) {
  const double gain = rule_of(UnusualChoice::context_split).gain;
  Candidate odd = candidate(0, 1, 100);
  odd.unusual = {UnusualChoice::context_split};
  const Candidate slower = candidate(1, 1 + gain / 2, 100),
                  slowest = candidate(2, 1 + 2 * gain, 100);
  EXPECT_TRUE(better(slower, odd));
  EXPECT_TRUE(better(odd, slowest));
  const std::vector<Candidate> candidates = {odd, slower, slowest};
  EXPECT_EQ(best_plans(candidates), (std::vector<std::size_t>{1, 0, 2}));
  EXPECT_EQ(fastest_plan(candidates), 0u);
  EXPECT_EQ(runner_up(odd, odd.prediction, slower.prediction).term, LossTerm::unusual_choice);
  EXPECT_EQ(runner_up(slowest, slowest.prediction, slower.prediction).term, LossTerm::compute);
  EXPECT_FALSE(fastest_plan({}));
}

TEST(RunnersUp, EqualTimeLosesByBytesOrByOrder) {
  const Candidate best = candidate(0, 1, 100);
  const RunnerUp heavier =
      runner_up(candidate(0, 1, 164), candidate(0, 1, 164).prediction, best.prediction);
  EXPECT_EQ(heavier.term, LossTerm::memory);
  EXPECT_EQ(heavier.term_bytes, Bytes(64));
  EXPECT_EQ(runner_up(best, best.prediction, best.prediction).term, LossTerm::tie);
}

}  // namespace
}  // namespace plimsoll
