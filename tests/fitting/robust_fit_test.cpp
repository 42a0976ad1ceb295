// The robust fit: what it finds, what it leaves alone, and where it cannot go.
#include "fitting/robust/robust_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace plimsoll {
namespace {

using Values = LogModel::Values;

/// time_i = a + b x_i, the truth 2 and 3, each with a noise of that standard deviation.
LogModel line(std::size_t count, double noise) {
  LogModel model;
  model.numbers = {{"a", 1, 1.5, 1e-3, 1e3}, {"b", 1, 1.5, 1e-3, 1e3}};
  model.least_scale = 1e-3;
  model.most_scale = 0.5;
  const auto predicted = [count](const Values& values) {
    Values all;
    for (std::size_t i = 0; i < count; ++i)
      all.push_back(std::log(values[0] + values[1] * std::pow(2.0, double(i % 8) - 4)));
    return all;
  };
  model.predicted = predicted;
  model.measured = predicted({2, 3});
  std::mt19937_64 random(5);
  for (double& value : model.measured) {
    const double uniform = double(random() >> 11) * 0x1p-53;  // of variance 1/12 about its mean
    value += noise * (uniform - 0.5) * std::sqrt(12.0);
  }
  return model;
}

RobustSolution solved(const LogModel& model) {
  return solve_determined(model, std::vector<bool>(model.measured.size(), true), model.priors(),
                          {.most_derivations = 15});
}

TEST(RobustFit, FindsTheNumbers) {
  const RobustSolution found = solved(line(40, 0));
  EXPECT_TRUE(found.converged);
  EXPECT_NEAR(found.values[0], 2, 0.01);
  EXPECT_NEAR(found.values[1], 3, 0.01);
}

TEST(RobustFit, ATrialPointThatCannotBePredictedIsNoAnswer) {
  LogModel model = line(40, 0);
  model.predicted = [inside = model.predicted](const Values& values) {
    // A first step from the priors goes beyond this.
    if (values[0] + values[1] > 5.2) return Values(40, std::numeric_limits<double>::infinity());
    return inside(values);
  };
  const RobustSolution found = solved(model);
  EXPECT_NEAR(found.values[0], 2, 0.1);
  EXPECT_NEAR(found.values[1], 3, 0.1);
}

TEST(RobustFit, WhatABoundHoldsBackTheOthersDoNotMakeUpForTwice) {
  LogModel model = line(40, 0);
  model.numbers[0].most = 1.5;  // the truth is 2
  const RobustSolution found = solved(model);
  EXPECT_DOUBLE_EQ(found.values[0], 1.5);
  LogModel fixed = line(40, 0);
  const std::vector<bool> all(40, true);
  const RobustSolution known = solve(fixed, all, {true, false}, {1.5, 1}, {.most_derivations = 15});
  EXPECT_NEAR(found.values[1], known.values[1], 0.01);
}

TEST(RobustFit, WhatOnlyAProductIsKnownOfIsSureAlone) {
  LogModel model;
  model.numbers = {{"a", 1, 0.5, 1e-3, 1e3}, {"b", 1, 0.5, 1e-3, 1e3}};
  model.least_scale = model.most_scale = 0.01;
  model.predicted = [](const Values& values) {
    return Values(40, std::log(values[0] * values[1]));
  };
  model.measured = Values(40, std::log(1.5));
  const RobustSolution found =
      solve(model, std::vector<bool>(40, true), {false, false}, {1, 1}, {.most_derivations = 15});
  EXPECT_NEAR(found.values[0] * found.values[1], 1.5, 1e-3);
  // Only the prior says anything about a - b: 0.5 / sqrt 2 each.
  EXPECT_NEAR(found.deviations[0], 0.5 / std::sqrt(2.0), 0.01);
  // 40 measurements of a standard deviation of 0.01.
  EXPECT_NEAR(found.alone[0], 0.01 / std::sqrt(40.0), 1e-4);
}

TEST(RobustFit, IntervalsEndAtTheBounds) {
  LogModel model = line(40, 0.01);
  model.numbers[0].most = 1.5;  // made with 2
  const std::vector<FittedValue> found = fitted_values(model, solved(model), 2);
  EXPECT_TRUE(found[0].at_bound());
  EXPECT_EQ(found[0].high, 1.5);
  EXPECT_LT(found[0].low, 1.5);
  EXPECT_FALSE(found[1].at_bound());
}

TEST(RobustFit, AFewThatLieFarOffMoveLittle) {
  LogModel model = line(80, 0.01);
  for (std::size_t i = 0; i < 8; ++i) model.measured[i * 9] += 1;
  const RobustSolution found = solved(model);
  EXPECT_NEAR(found.values[0], 2, 0.06);
  EXPECT_NEAR(found.values[1], 3, 0.09);
}

TEST(RobustFit, GroupsHaveTheirOwnNoise) {
  LogModel model = line(80, 0.01);
  for (std::size_t i = 0; i < 80; ++i) {
    model.groups.push_back(i % 2);
    if (i % 2 == 1) model.measured[i] += i % 4 == 1 ? 0.1 : -0.1;
  }
  const RobustSolution found = solved(model);
  EXPECT_LT(found.scales[0], 0.03);
  EXPECT_GT(found.scales[1], 0.08);
}

TEST(RobustFit, SmallGroupsShareTheNoiseOfAll) {
  LogModel model = line(80, 0.01);
  for (std::size_t i = 0; i < 80; ++i) model.groups.push_back(i < kLeastOfGroup - 1 ? 1 : 0);
  const RobustSolution small = solved(model);
  model.groups.clear();
  EXPECT_NEAR(small.scales[1], solved(model).scales[0], 1e-4);
}

TEST(RobustFit, WhatIsOpenOfAMeasurementMakesItCountLess) {
  LogModel model = line(40, 0);
  for (std::size_t i = 0; i < 40; ++i) {
    model.open.push_back(i < 20 ? 0 : 0.2);
    if (i >= 20) model.measured[i] += 0.1;
  }
  const RobustSolution found = solved(model);
  EXPECT_NEAR(found.values[0], 2, 0.02);
  EXPECT_NEAR(found.values[1], 3, 0.03);
}

TEST(RobustFit, WhatIsNotMeasuredStaysOrFollowsItsNeighbours) {
  LogModel model = line(40, 0);
  model.numbers.push_back({"none", 7, 0.5, 1, 100});
  EXPECT_TRUE(solved(model).fixed[2]);
  EXPECT_EQ(solved(model).values[2], 7);
  // Moves with a, by the prior: covariance 0.9 of equal variances.
  model.numbers[2].named = false;
  Eigen::MatrixXd covariance = Eigen::MatrixXd::Identity(3, 3);
  covariance(0, 2) = covariance(2, 0) = 0.9;
  model.precision = covariance.inverse();
  const RobustSolution found = solved(model);
  EXPECT_FALSE(found.fixed[2]);
  EXPECT_NEAR(std::log(found.values[2] / 7), 0.9 * std::log(found.values[0]), 0.01);
}

TEST(RobustFit, KnownDerivativesLeadToTheSameEnd) {
  const LogModel model = line(40, 0.01);
  const RobustSolution whole = solved(model);
  std::vector<bool> use(40, true);
  for (std::size_t i = 0; i < 40; i += 5) use[i] = false;
  const RobustSolution fresh =
      solve_determined(model, use, model.priors(), {.most_derivations = 15});
  const RobustSolution again =
      solve_determined(model, use, whole.values,
                       {.most_derivations = 3, .most_steps = 25, .known = &whole.derivatives});
  for (std::size_t p = 0; p < 2; ++p) EXPECT_NEAR(again.values[p] / fresh.values[p], 1, 0.005);
}

}  // namespace
}  // namespace plimsoll
