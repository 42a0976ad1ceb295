// Fixed choices: holding a choice that the search makes never gives a faster plan.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/search/search.h"
#include "tests/planner/random_problems.h"

namespace plimsoll {
namespace {

/// Up to three keys that searches vary, with their values in some legal strategy.
Fixed random_choices(const Strategy& strategy, std::mt19937_64& random) {
  std::vector<std::string_view> searched;
  const std::vector<std::string_view> others = not_searched();
  for (const std::string_view key : strategy_keys()) {
    if (std::find(others.begin(), others.end(), key) == others.end()) searched.push_back(key);
  }
  Fixed fixed;
  for (std::size_t i = 0; i < 1 + random() % 3; ++i) {
    const std::string key(searched[random() % searched.size()]);
    const bool again = std::any_of(fixed.begin(), fixed.end(),
                                   [&](const auto& pair) { return pair.first == key; });
    if (!again) fixed.emplace_back(key, field_text(strategy, key));
  }
  return fixed;
}

TEST(FixedChoices, NeverGiveAFasterPlan) {
  std::mt19937_64 random(9);
  const int problems = problems_to_draw(40);
  int compared = 0;
  for (int i = 0; i < problems; ++i) {
    Problem problem = random_problem(random);
    if (problem.framework.name == "bundled") problem.cluster.device.kind = DeviceKind::cpu_core;
    problem.devices = std::min<std::int64_t>(problem.devices, 6);
    SearchRequest request{problem.target()};
    request.fastest = true;  // a held choice is never unusual
    request.inputs.cluster_digest = std::string(64, '0');
    if (problem.calibration) request.inputs.calibration_digest = std::string(64, '1');
    const Space space = enumerate(request);
    if (space.legal.empty()) continue;
    const Strategy drawn = space.legal[random() % space.legal.size()];
    const Fixed fixed = random_choices(drawn, random);
    try {
      const Plan free = search(request);
      request.constraints.fixed = fixed;
      const Plan held = search(request);
      ++compared;
      EXPECT_GE(held.prediction.step_time, free.prediction.step_time)
          << strategy_summary(held.strategy) << " against " << strategy_summary(free.strategy)
          << "\n"
          << describe(problem);
    } catch (const InfeasibleError&) {  // nothing that is held so fits or ends in time
    }
  }
  EXPECT_GT(compared, problems / 2);
  fmt::print("{} of {} compared\n", compared, problems);
}

TEST(FixedChoices, WhatNoSearchVariesIsNamed) {
  const std::vector<std::string_view> keys = not_searched();
  const auto has = [&](std::string_view key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  for (const char* key : {"fp8", "send_lifetime", "send_slots", "gradient_type"})
    EXPECT_TRUE(has(key)) << key;
  for (const char* key : {"mp", "cp", "virtual_stages", "recompute_layers", "prefetch_depth",
                          "layer_split", "recompute_list"})
    EXPECT_FALSE(has(key)) << key;
}

}  // namespace
}  // namespace plimsoll
