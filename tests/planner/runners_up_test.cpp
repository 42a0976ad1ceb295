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
  candidates[1].strategy.grad_bucket_bytes = Bytes(1 << 20);
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
  const RunnerUp result = runner_up({}, loser.prediction, best.prediction);
  EXPECT_EQ(result.term, "bubble");
  EXPECT_DOUBLE_EQ(result.term_time.value(), 0.4);
}

TEST(RunnersUp, TiedOnesComeFirstFromTheSimplestOn) {
  const auto loser = [](const char* strategy, double step, bool tied) {
    RunnerUp result;
    result.strategy = parse_strategy(strategy);
    result.step_time = Seconds(step);
    result.ratio.tied = tied;
    return result;
  };
  std::vector<RunnerUp> list = {loser("mp=2,pp=2,dp=2", 1.0, true), loser("mp=8", 1.1, false),
                                loser("mp=2,pp=4", 1.2, true),      loser("dp=2,pp=4", 1.3, true),
                                loser("dp=8", 1.4, true),           loser("pp=8", 1.5, false)};
  tied_first(list);
  std::vector<double> steps;
  for (const RunnerUp& one : list) steps.push_back(one.step_time.value());
  // mp=2,pp=4 has eight parts, dp=2,pp=4 four.
  EXPECT_EQ(steps, (std::vector<double>{1.4, 1.3, 1.2, 1.0, 1.1, 1.5}));
}

TEST(RunnersUp, EqualTimeLosesByBytesOrByOrder) {
  const Candidate best = candidate(0, 1, 100);
  const RunnerUp heavier = runner_up({}, candidate(0, 1, 164).prediction, best.prediction);
  EXPECT_EQ(heavier.term, "memory");
  EXPECT_EQ(heavier.term_bytes, Bytes(64));
  EXPECT_EQ(runner_up({}, candidate(0, 1, 100).prediction, best.prediction).term, "tie");
}

}  // namespace
}  // namespace plimsoll
