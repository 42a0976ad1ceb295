// Bounds of families and of single strategies: at most what evaluate finds, for jobs whose layers
// are alike and for others.
#include "planner/explore/family_bounds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "predict/evaluate.h"
#include "tests/planner/random_problems.h"

namespace plimsoll {
namespace {

/// Draws a problem whose layers may differ: experts in some layers, windows, MTP modules. The
/// layers are large beside the blocks to which buffers are rounded.
Problem draw(std::mt19937_64& random) {
  Problem problem = random_llama_problem(random);
  Job& job = problem.job;
  if (job.experts && job.experts->dense_layers == 0 && job.layers > 1 && random() % 3 != 0)
    job.experts->pattern = {false, true};
  if (random() % 3 == 0) job.mtp = MultiToken{std::int64_t(1 + random() % 2), 0.3};
  constexpr std::int64_t kLarger = 64;
  job.hidden *= kLarger;
  job.ffn_hidden *= kLarger;
  if (job.experts) job.experts->ffn_hidden *= kLarger;
  check_job(job, "random job");
  return problem;
}

bool has(const FamilyBound& bound, std::size_t arrangement) {
  return std::ranges::any_of(bound.groups, [&](const GroupBound& group) {
    return group.first <= arrangement && arrangement < group.last;
  });
}

TEST(FamilyBounds, AndThoseOfStrategiesAreAtMostWhatEvaluateFindsWhereLayersDiffer) {
  std::mt19937_64 random(5);
  std::int64_t checked = 0, differ = 0, sharp = 0, modules = 0, in_turns = 0;
  while (checked < problems_to_draw(1'200)) {
    const Problem problem = draw(random);
    const Target target = problem.target();
    const Bounds bounds(target);
    const FamilyBounds families(target, bounds);
    Fixed fixed;
    if (problem.job.experts && random() % 3 != 0)
      fixed.emplace_back("overlap_expert_exchange", "true");
    const Space space = enumerate(problem.job, problem.framework, problem.devices, fixed,
                                  units_of(problem.cluster));
    for (int i = 0; i < 20 && !space.legal.empty(); ++i) {
      const StrategyFamily& family =
          space.legal.families()[random() % space.legal.families().size()];
      const std::size_t arrangement = random() % family.arrangements->all.size();
      const Strategy strategy = space.legal.of(family, arrangement, random() % family.buckets);
      const std::string who = describe(problem) + strategy_summary(strategy);
      const Footprint footprint = lay_out(target, strategy, Proof::structure);
      const Prediction found =
          predict(target, strategy, footprint, Folding::folded, Detail::none).prediction;
      const Bytes peak = largest(found.stages, &StagePrediction::peak);
      const Bytes reserved = largest(found.stages, &StagePrediction::reserved);
      ASSERT_TRUE(has(families.of(family, reserved), arrangement)) << who;
      const Bytes unlimited(std::int64_t{1} << 50);
      for (const GroupBound& group : families.of(family, unlimited).groups) {
        if (arrangement < group.first || arrangement >= group.last) continue;
        ASSERT_LE(group.step.seconds(), found.step_time) << who;
        ASSERT_LE(group.peak, peak) << who;
        sharp += group.peak.count() * 4 > peak.count() * 3;
      }
      const MemoryBound memory = bounds.memory(strategy);
      ASSERT_LE(memory.peak, peak) << who;
      ASSERT_LE(memory.reserved, reserved) << who;
      ASSERT_LE(bounds.bottleneck(strategy).seconds(), found.step_time) << who;
      // As in bounds_test.cpp, kernels beside transfers make this bound exceed a step a little.
      ASSERT_LE(bounds.actions(strategy).seconds(), found.step_time * 1.0005) << who;
      ++checked;
      differ += problem.job.experts && !problem.job.experts->pattern.empty();
      modules += problem.job.mtp.has_value();
      in_turns += strategy.experts.overlap_exchange;
    }
  }
  EXPECT_GT(differ, checked / 60);
  EXPECT_GT(modules, checked / 6);
  EXPECT_GT(in_turns, checked / 60);
  fmt::print("{} of {} peaks are bounded to a quarter\n", sharp, checked);
}

/// Measured transfers of fewer bytes may take longer. Borders are small, so that a bound that
/// rounds their bytes down takes the time of another measured size.
TEST(FamilyBounds, AreAtMostWhatEvaluateFindsWithMeasuredTransfers) {
  std::mt19937_64 random(12);
  std::int64_t checked = 0, differ = 0;
  while (checked < problems_to_draw(1'200)) {
    const Problem problem = random_problem(random);
    if (!problem.calibration || problem.devices == 1) continue;
    const Target target = problem.target();
    const Bounds bounds(target);
    const FamilyBounds families(target, bounds);
    const Space space =
        enumerate(problem.job, problem.framework, problem.devices, {}, units_of(problem.cluster));
    for (int i = 0; i < 30 && !space.legal.empty(); ++i) {
      const StrategyFamily& family =
          space.legal.families()[random() % space.legal.families().size()];
      if (family.base.pp == 1) continue;
      const std::size_t arrangement = random() % family.arrangements->all.size();
      const Strategy strategy = space.legal.of(family, arrangement, 0);
      const Footprint footprint = lay_out(target, strategy, Proof::structure);
      const Seconds step =
          predict(target, strategy, footprint, Folding::folded, Detail::none).prediction.step_time;
      const Bytes unlimited(std::int64_t{1} << 50);
      for (const GroupBound& group : families.of(family, unlimited).groups) {
        if (arrangement < group.first || arrangement >= group.last) continue;
        ASSERT_LE(group.step.seconds(), step) << describe(problem) << strategy_summary(strategy);
      }
      ++checked;
      differ += strategy.micro_batch > 1;
    }
  }
  EXPECT_GT(differ, checked / 10);
}

}  // namespace
}  // namespace plimsoll
