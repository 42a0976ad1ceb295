// Top plans: the best plans that split the job otherwise, against evaluating everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/explore/runners_up.h"
#include "planner/search/search.h"
#include "tests/planner/explore_all.h"
#include "tests/planner/random_problems.h"

namespace plimsoll {
namespace {

TEST(TopPlans, SwitchesAloneMakeNoOtherPlan) {
  const Strategy one = parse_strategy("mp=2,pp=2,dp=2,recompute=full");
  const auto alike = [&](const char* other) {
    return same_but_switches(one, parse_strategy(other));
  };
  EXPECT_TRUE(alike("mp=2,pp=2,dp=2,recompute=full,sequence_parallel=true,virtual_stages=2"));
  EXPECT_TRUE(alike("mp=2,pp=2,dp=2,recompute=full,recompute_layers=3,split_boundary=true"));
  EXPECT_FALSE(alike("mp=4,pp=2,recompute=full"));
  EXPECT_FALSE(alike("mp=2,pp=2,dp=2,recompute=selective"));
  EXPECT_FALSE(alike("mp=2,pp=2,dp=2,recompute=full,micro_batch=2"));
  EXPECT_FALSE(alike("mp=2,pp=2,dp=2,recompute=full,schedule=zb_h1"));
  EXPECT_FALSE(alike("mp=2,pp=2,sharding_degree=2,recompute=full"));
  EXPECT_TRUE(same_but_switches(parse_strategy("dp=2,sharding_degree=4"),
                                parse_strategy("dp=4,sharding_degree=2")));
}

/// The steps of a plan and its runners-up; no two of them may split the job alike.
std::vector<Seconds> listed_steps(const Plan& plan) {
  std::vector<Strategy> seen = {plan.strategy};
  std::vector<Seconds> steps = {plan.prediction.step_time};
  for (const RunnerUp& one : plan.runners_up) {
    for (const Strategy& other : seen) EXPECT_FALSE(same_but_switches(one.strategy, other));
    seen.push_back(one.strategy);
    steps.push_back(one.step_time);
  }
  std::ranges::sort(steps);
  return steps;
}

TEST(TopPlans, AreTheBestOfAll) {
  std::mt19937_64 random(31);
  std::size_t planned = 0, listed = 0;
  for (int i = 0; i < problems_to_draw(30); ++i) {
    Problem problem = random_problem(random);
    if (problem.framework.name == "bundled") problem.cluster.device.kind = DeviceKind::cpu_core;
    problem.devices = std::min<std::int64_t>(problem.devices, 4);
    SearchRequest request{problem.target()};
    request.inputs.cluster_digest = std::string(64, '0');
    if (problem.calibration) request.inputs.calibration_digest = std::string(64, '1');
    request.shown = {8, Likeness::switches};
    request.tolerance = 0;
    if (enumerate(request).legal.size() > 1000) continue;  // too many to evaluate all
    try {
      const Plan found = search(request);
      const Plan all = search(request, explore_all);
      EXPECT_EQ(listed_steps(found), listed_steps(all)) << describe(problem);
      EXPECT_LE(found.runners_up.size(), 8u);
      listed += found.runners_up.size();
      ++planned;
    } catch (const InfeasibleError&) {
    }
  }
  EXPECT_GT(planned, 2u);
  EXPECT_GT(listed, 5 * planned / 2);
}

}  // namespace
}  // namespace plimsoll
