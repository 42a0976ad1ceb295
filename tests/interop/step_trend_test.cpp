// Trends and slow steps of made-up logs are those that the logs were made with.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "interop/logs/steady_part.h"

namespace plimsoll {
namespace {

std::vector<double> drifting(std::size_t steps, double change, double noise, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> spread(0, 1);
  std::vector<double> times;
  for (std::size_t i = 0; i < steps; ++i)
    times.push_back(2 * std::exp(change * double(i) / double(steps - 1) + noise * spread(random)));
  return times;
}

/// Steps of 1 s without a steady part of their own.
SlowSteps slow_of(const std::vector<double>& times) {
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < times.size(); ++i) numbers.push_back(std::int64_t(i) + 1);
  SteadyPart steady;
  steady.median = steady.lower_quartile = steady.upper_quartile = Seconds(1);
  return slow_steps(numbers, times, steady);
}

TEST(StepTrend, IsTheLineThatTheStepsWereMadeWith) {
  for (const double change : {-0.2, 0.0, 0.07}) {
    const StepTrend trend = *trend_of(drifting(200, change, 0, 1));
    EXPECT_NEAR(trend.change, change, 1e-9);
    EXPECT_NEAR(trend.half_width, 0, 1e-6);
  }
  EXPECT_FALSE(trend_of(drifting(kLeastOfTrend - 1, 0.1, 0, 1)).has_value());
}

TEST(StepTrend, ItsIntervalContainsTheTruthInNineOfTenLogs) {
  constexpr int kLogs = 1000;
  for (const std::size_t steps : {kLeastOfTrend, std::size_t{137}}) {
    int held = 0;
    for (unsigned seed = 0; seed < kLogs; ++seed) {
      const StepTrend trend = *trend_of(drifting(steps, 0.05, 0.03, seed));
      held += std::abs(trend.change - 0.05) <= trend.half_width ? 1 : 0;
    }
    // 90 % of 1000, and three standard deviations of that number, sqrt(1000 x 0.9 x 0.1).
    EXPECT_NEAR(held, 900, 3 * 9.5) << steps;
  }
}

TEST(StepTrend, OutliersDoNotBendIt) {
  std::vector<double> times = drifting(200, 0, 0.01, 1);
  for (std::size_t i = 150; i < 200; i += 7) times[i] *= 1.9;
  const StepTrend trend = *trend_of(times);
  EXPECT_LT(std::abs(trend.change), 0.02);
}

TEST(SlowSteps, AreCountedWithTheTimeThatTheyCost) {
  std::vector<double> times(40, 1);
  for (std::size_t i = 9; i < times.size(); i += 10) times[i] = 1.5;
  const SlowSteps slow = slow_of(times);
  EXPECT_DOUBLE_EQ(slow.share, 4.0 / 40);
  EXPECT_DOUBLE_EQ(slow.lost, 4 * 0.5 / (36 + 4 * 1.5));
  EXPECT_EQ(slow.period, 10);
}

TEST(SlowSteps, ThatComeAtRandomHaveNoPeriod) {
  std::vector<double> times(100, 1);
  for (const std::size_t i : {3, 5, 17, 18, 44, 61, 80, 99}) times[i] = 3;
  EXPECT_DOUBLE_EQ(slow_of(times).share, 0.08);
  EXPECT_FALSE(slow_of(times).period.has_value());
  EXPECT_EQ(slow_of(std::vector<double>(100, 1.04)).share, 0);
}

}  // namespace
}  // namespace plimsoll
