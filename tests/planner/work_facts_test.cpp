// Work facts: what micro-batches take without lowering them, beside what lowered ones take.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "passes/pipeline.h"
#include "planner/bounds/bounds.h"
#include "tests/planner/random_problems.h"

namespace plimsoll {
namespace {

void expect_equal_times(const CallFacts& work, const CallFacts& lowered, const std::string& who) {
  ASSERT_EQ(work.span, lowered.span) << who;
  ASSERT_EQ(work.sends, lowered.sends) << who;
  ASSERT_EQ(work.computes, lowered.computes) << who;
}

/// Families are bounded by these.
TEST(WorkFacts, OfManySequencesHaveTheTimesOfLoweredOnesAndAtMostTheirBytes) {
  std::mt19937_64 random(7);
  std::int64_t many = 0;
  while (many < 3000) {
    const Problem problem = random_problem(random);
    const Bounds bounds(problem.target());
    for (Strategy strategy : random_strategies(problem, random, 10)) {
      const std::string who = describe(problem) + strategy_summary(strategy);
      for (const std::int64_t sequences : {1, 2, 3, 5, 8}) {
        strategy.micro_batch = sequences;
        const auto work = bounds.work(strategy), lowered = bounds.facts_without_transfers(strategy);
        ASSERT_EQ(work->blocks.size(), lowered->blocks.size()) << who;
        for (std::size_t b = 0; b < work->blocks.size(); ++b) {
          const BlockFacts &one = work->blocks[b], &other = lowered->blocks[b];
          expect_equal_times(one.forward, other.forward, who);
          expect_equal_times(one.backward, other.backward, who);
          expect_equal_times(one.weights, other.weights, who);
          ASSERT_LE(one.kept, other.kept) << who;
          ASSERT_LE(one.saved, other.saved) << who;
          ASSERT_LE(one.forward.frame, other.forward.frame) << who;
          ASSERT_EQ(one.recomputing, other.recomputing) << who;
        }
        many += sequences > 2;
      }
    }
  }
}

/// Jobs with grouped heads that rings of 64 ranks are legal for, on networks of several speeds.
void expect_least_rings(const std::string& framework_name, double network, Recompute recompute,
                        ContextExchange exchange) {
  const Job job = read_job("llama3-8b");
  Cluster cluster = read_cluster("dgx-h100-80gb");
  for (Level& level : cluster.levels) level.bandwidth = level.bandwidth * network;
  const CostModel costs(cluster, {}, framework_by_name(framework_name));
  const Bounds bounds(Target(job, costs, 1024));
  const std::int64_t times =
      costs.framework().parallelism.sums_parts_in_f32 ? 5 : 2;  // sums are left out
  for (const std::int64_t cp : {16, 64}) {
    for (const std::int64_t sequences : {1, 2, 4}) {
      for (const std::int64_t mp : {1, 4}) {
        Strategy strategy;
        strategy.cp = cp;
        strategy.tokens.context_exchange = exchange;
        strategy.mp = mp;
        strategy.recompute = recompute;
        strategy.tokens.sequence_parallel = mp > 1;
        strategy.micro_batch = sequences;
        const auto ring = bounds.ring_work(strategy), lowered = bounds.work(strategy);
        for (std::size_t b = 0; b < ring->blocks.size(); ++b) {
          const std::string who = fmt::format("{} x {}: block {} cp {} mp {} x {}", framework_name,
                                              network, b, cp, mp, sequences);
          const BlockFacts &least = ring->blocks[b], &exact = lowered->blocks[b];
          EXPECT_LE(least.forward.span, exact.forward.span) << who;
          EXPECT_LE(least.backward.span, exact.backward.span) << who;
          EXPECT_LE(least.kept, exact.kept) << who;
          // Families count what goes on behind a send as not waited for.
          EXPECT_GE(least.forward.span - least.forward.sends,
                    exact.forward.span - exact.forward.sends)
              << who;
          if (exact.shape.kind != BlockKind::layer) continue;
          EXPECT_GT(least.forward.span.count() * times, exact.forward.span.count()) << who;
        }
      }
    }
  }
}

TEST(WorkFacts, OfRingsWhoseRoundsAreNotLoweredAreAtMostThoseOfLoweredRings) {
  for (const double network : {1.0, 0.01}) {
    for (const Recompute recompute : {Recompute::none, Recompute::full})
      expect_least_rings("megatron-lm", network, recompute, ContextExchange::ring);
  }
  // Sums in f32 and repeated keys go round, too. Gathered keys are read part by part.
  for (const ContextExchange exchange : {ContextExchange::ring, ContextExchange::all_gather})
    expect_least_rings("torchtitan", 1, Recompute::none, exchange);
  Strategy gathers;
  gathers.cp = 64;
  gathers.tokens.context_exchange = ContextExchange::all_gather;
  EXPECT_TRUE(is_long_ring(framework_by_name("torchtitan"), gathers));
  EXPECT_FALSE(is_long_ring(framework_by_name("megatron-lm"), gathers));
}

}  // namespace
}  // namespace plimsoll
