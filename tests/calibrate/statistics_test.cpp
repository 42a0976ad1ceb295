// From timings to samples.
#include "calibrate/measure/statistics.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

std::vector<Seconds> seconds(std::initializer_list<double> values) {
  std::vector<Seconds> result;
  for (double value : values) result.emplace_back(value);
  return result;
}

TEST(Statistics, QuantilesAreLinearBetweenNeighbours) {
  const auto timings = seconds({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(quantile(timings, 0).value(), 1);
  EXPECT_DOUBLE_EQ(quantile(timings, 0.5).value(), 2.5);
  EXPECT_DOUBLE_EQ(quantile(timings, 1).value(), 4);
  EXPECT_DOUBLE_EQ(quantile(timings, 0.25).value(), 1.75);
}

TEST(Statistics, OneOutlierMovesNeitherMedianNorSpread) {
  const Sample sample = summarize(seconds({10, 10, 10, 10, 10, 10, 1000}));
  EXPECT_DOUBLE_EQ(sample.median.value(), 10);
  EXPECT_DOUBLE_EQ(sample.spread.value(), 0);
  EXPECT_EQ(sample.samples, 7);
  EXPECT_FALSE(sample.unsteady);
}

TEST(Statistics, MoreThanATenthOfSpreadIsUnsteady) {
  // Quartiles 100 and 110 around a median of 105, then 100 and 112 around 106.
  EXPECT_FALSE(summarize(seconds({100, 100, 100, 105, 110, 110, 110})).unsteady);
  EXPECT_TRUE(summarize(seconds({100, 100, 100, 106, 112, 112, 112})).unsteady);
}

TEST(StatisticsDeathTest, FewerThanSevenTimingsAreNoSample) {
  EXPECT_DEATH(summarize(seconds({1, 2, 3, 4, 5, 6})), "too few timings");
}

}  // namespace
}  // namespace plimsoll
