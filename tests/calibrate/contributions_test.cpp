// One sample out of many ranks', and naming who is slow.
#include "calibrate/sessions/contributions.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

Contribution of(const std::string& who, double median, double spread = 0) {
  return {who, {Seconds(median), Seconds(spread), 7, false}};
}

TEST(Merged, IsTheMedianRankWithTheLargerOfBothSpreads) {
  const Contribution steady[] = {of("a", 10, 0.5), of("b", 10, 0.1), of("c", 10, 0.3)};
  EXPECT_EQ(merged(steady), (Sample{Seconds(10), Seconds(0.3), 21, false}));
  const Contribution apart[] = {of("a", 8), of("b", 10), of("c", 14)};
  EXPECT_EQ(merged(apart), (Sample{Seconds(10), Seconds(3), 21, true}));  // quartiles 9 and 12
}

TEST(Outliers, AreNamedWhenSlowInMostTests) {
  Outliers outliers;
  const Contribution slow[] = {of("a", 10), of("b", 10), of("c", 15)};
  const Contribution even[] = {of("a", 10), of("b", 10), of("c", 10)};
  const Contribution two[] = {of("a", 10), of("b", 100)};
  outliers.add_test(slow);
  outliers.add_test(slow);
  outliers.add_test(even);
  outliers.add_test(two);
  ASSERT_EQ(outliers.named().size(), 1u);
  EXPECT_EQ(outliers.named()[0], "c: slower than the others in 2 of 3 tests, by 50 %");
  outliers.add_test(even);
  outliers.add_test(even);
  EXPECT_TRUE(outliers.named().empty());
}

}  // namespace
}  // namespace plimsoll
