// Trials of made-up plans, whose gains are known from the normal distribution.
#include "predict/trials.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numbers>

#include "base/log_statistics.h"

namespace plimsoll {
namespace {

constexpr double kOpen = 0.02;  // half width of each step, far below what any two runs differ by
const double kApart =
    kOpen * std::numbers::sqrt2 / kNormal90;  // deviation of two steps' difference

/// Plans are told apart by the shares of their bubbles.
TrialPlan plan(double step, double bubble, std::vector<Unusual> unusual = {}) {
  TrialPlan plan{{Seconds(step), {}, {}, TimeBasis::typical, kOpen}, std::move(unusual)};
  plan.time.breakdown.bubble = Seconds(bubble);
  return plan;
}

TEST(Trials, TwoPlansThatAreAlikeGainTheLeastOfTwoDraws) {
  const auto trials = choose_trials(std::array{plan(1, 0), plan(1, 0.01)}, 0);
  ASSERT_EQ(trials.size(), 1u);
  EXPECT_EQ(trials[0].plan, 1u);
  // E[min(0, x)] of a normal x is -deviation / sqrt(2 pi).
  EXPECT_NEAR(std::log(1 - trials[0].gain), -kApart / std::sqrt(2 * std::numbers::pi), 1e-9);
}

TEST(Trials, ThreePlansGainTheLeastOfThreeDraws) {
  const auto trials = choose_trials(std::array{plan(1, 0), plan(1, 0.01), plan(1, 0.02)}, 0);
  ASSERT_EQ(trials.size(), 2u);
  // The least of three independent normal draws is 3 / (2 sqrt(pi)) deviations below their mean;
  // the difference of two has sqrt(2) deviations. The approximation is known to be near 1 %.
  const double exact = 1.5 / std::sqrt(std::numbers::pi) * kApart / std::numbers::sqrt2;
  EXPECT_NEAR(std::log(1 - trials[1].gain), -exact, 0.02 * exact);
}

TEST(Trials, APlanThatIsKnownToBeSlowerIsNotTried) {
  EXPECT_TRUE(choose_trials(std::array{plan(1, 0), plan(1.2, 0)}, 1e-6).empty());
  // A plan that is surely faster, but for an unusual choice, gains what is beyond its handicap.
  const auto odd = plan(0.8, 0, {Unusual(UnusualChoice::odd_micro_batch)});
  const auto trials = choose_trials(std::array{plan(1, 0), odd}, 1e-6);
  ASSERT_EQ(trials.size(), 1u);
  EXPECT_NEAR(trials[0].gain, 1 - 0.8 * handicap(odd.unusual), 1e-6);
}

TEST(Trials, TightMemoryGainsAsOftenAsItFits) {
  // At odds of three to one against it, a plan fits once in four times.
  const auto tight = plan(0.8, 0, {Unusual(UnusualChoice::tight_memory, 3)});
  const auto trials = choose_trials(std::array{plan(1, 0), tight}, 1e-6);
  ASSERT_EQ(trials.size(), 1u);
  EXPECT_NEAR(std::log(1 - trials[0].gain), std::log(0.8) / 4, 1e-6);  // and it is not tried again
}

TEST(Trials, TheMostDifferentOfEqualPlansIsTriedAndPaysForItself) {
  const double gain = kApart / std::sqrt(2 * std::numbers::pi);
  const std::array plans = {plan(1, 0), plan(1, 0.01)};
  EXPECT_EQ(choose_trials(plans, 0.9 * gain).size(), 1u);
  EXPECT_TRUE(choose_trials(plans, 1.1 * gain).empty());
  // Two steps that are the same in all of their parts have one error: a trial tells nothing.
  EXPECT_TRUE(choose_trials(std::array{plan(1, 0), plan(1, 0)}, 0).empty());
}

TEST(Trials, ATrialGainsItsTwentySteps) {
  EXPECT_DOUBLE_EQ(least_gain(1'000, 1e6), 0.02);
  EXPECT_DOUBLE_EQ(least_gain(1'000, 1e12), kLeastGain);
}

}  // namespace
}  // namespace plimsoll
