// Searches whose plans are decided by what a framework's allocator takes.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <set>

#include "passes/pipeline.h"
#include "plan/check.h"
#include "planner/explore/assess.h"
#include "planner/search/search.h"
#include "predict/evaluate.h"
#include "simulator/memory/allocation_replay.h"
#include "tests/planner/explore_all.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

constexpr Bytes kNoLimit{std::int64_t{1} << 60};

/// Large enough that requests of one strategy fall into several size classes.
Job job_of_test() {
  Job job = nano_job();
  job.hidden = 256;
  job.ffn_hidden = 1024;
  job.sequence = 128;
  return job;
}

Cluster gpus(Bytes memory = Bytes(std::int64_t{4} << 30)) {
  Cluster cluster = small_cluster();
  cluster.device.kind = DeviceKind::gpu;
  cluster.device.memory = memory;
  return cluster;
}

SearchRequest request_for(const char* framework, const Cluster& cluster = gpus()) {
  const CostModel costs(cluster, std::nullopt, framework_by_name(framework));
  SearchRequest request{Target(job_of_test(), costs, 4)};
  request.inputs.cluster_digest = std::string(64, '0');
  return request;
}

struct Outcome {
  std::string text;  ///< of the plan without how it was found, or why there is none
  std::int64_t evaluated = 0;
};

Outcome outcome(SearchRequest request, Explore& explore, std::int64_t threads) {
  request.threads = threads;
  request.tolerance = 0;
  std::int64_t before = 0;
  request.progress = [&](std::int64_t done, std::int64_t of) {
    EXPECT_GE(done, before);  // though plans that fail their replay bring others back
    EXPECT_LE(done, of);
    before = done;
  };
  try {
    Plan plan = search(request, explore);
    EXPECT_TRUE(plan.search.proven);
    for (const Violation& violation : check(plan)) {  // of what allocators take, not of live bytes
      ADD_FAILURE() << violation.rule << ": " << violation.message;
    }
    const std::int64_t evaluated = plan.search.evaluated;
    plan.search = {};
    return {plan_text(plan), evaluated};
  } catch (const InfeasibleError& error) {
    return {error.what(), 0};
  }
}

TEST(AllocatorSearch, EqualsBruteForceWhereTheAllocatorDecidesWhatFits) {
  std::mt19937_64 random(3);
  std::int64_t planned = 0, spared = 0;
  for (const char* framework : {"megatron-lm", "pytorch-fsdp", "paddle-2.1"}) {
    const Target roomy = request_for(framework).target;
    const StrategyList legal = enumerate(roomy.job, roomy.framework(), roomy.devices, {}).legal;
    ASSERT_FALSE(legal.empty()) << framework;
    for (int draw = 0; draw < 2; ++draw) {
      const Strategy strategy = legal[random() % legal.size()];
      const Footprint footprint = lay_out(roomy, strategy, Proof::none);
      const Bytes needs =
          largest(footprint.stages, &StagePrediction::reserved) + outside_program(roomy, strategy);
      const SearchRequest request = request_for(framework, gpus(needs - Bytes(draw % 2)));
      const Outcome expected = outcome(request, explore_all, 2);
      const Outcome found = outcome(request, branch_and_bound, draw < 1 ? 1 : 3);
      ASSERT_EQ(found.text, expected.text) << framework << " " << strategy_summary(strategy);
      planned += found.evaluated > 0;
      spared += found.evaluated < expected.evaluated;
    }
  }
  EXPECT_GT(planned, 3);
  EXPECT_EQ(spared, planned);
}

TEST(AllocatorSearch, ACandidateThatIsNotWorthItIsNotReplayed) {
  const Strategy strategy = parse_strategy("pp=2,dp=2,micro_batch=2");
  const Target roomy = request_for("megatron-lm").target;
  const Footprint footprint = lay_out(roomy, strategy, Proof::none);
  const Bytes needs =
      largest(footprint.stages, &StagePrediction::reserved) + outside_program(roomy, strategy);
  for (const Bytes memory : {needs, needs - Bytes(1)}) {
    const SearchRequest request = request_for("megatron-lm", gpus(memory));
    const Candidate replayed = assess(request.target, strategy, 0);
    EXPECT_TRUE(replayed.replayed);
    std::vector<Seconds> steps;
    const auto judged = [&](bool is_worth) {
      return assess(request.target, strategy, 0, [&, is_worth](const Candidate& candidate) {
        steps.push_back(candidate.prediction.step_time);
        return is_worth;
      });
    };
    const Candidate worth = judged(true), not_worth = judged(false);
    EXPECT_TRUE(worth.replayed);
    EXPECT_EQ(worth.fits, replayed.fits);
    EXPECT_EQ(worth.prediction.step_time, replayed.prediction.step_time);
    EXPECT_FALSE(not_worth.replayed);
    EXPECT_TRUE(not_worth.fits);
    EXPECT_EQ(steps, std::vector(2, not_worth.prediction.step_time));
    if (replayed.fits) {
      EXPECT_EQ(steps.front(), replayed.prediction.step_time);
    }
  }
}

/// A simulated strategy whose turn to be replayed has not come is no plan: the fastest must not
/// wait for it, or a search that is stopped early has nothing to show.
TEST(AllocatorSearch, StoppedEarlyItShowsTheBestSoFarAndAGapThatHolds) {
  SearchRequest request = request_for("megatron-lm");
  const Plan best = search(request);
  for (double limit = 1e-3; limit < 1000; limit *= 3) {
    request.time_limit = Seconds(limit);
    try {
      const auto begin = std::chrono::steady_clock::now();
      const Plan plan = search(request);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      EXPECT_LE(plan.prediction.step_time / (1 + plan.search.gap),
                best.prediction.step_time * (1 + 1e-12));
      if (plan.search.proven && taken.count() < limit) {
        EXPECT_EQ(plan_text(plan), plan_text(best));
        return;
      }
    } catch (const NothingFoundYet&) {
    }
  }
  FAIL() << "never finished";
}

/// Whatever the room: what the replay without limit takes, or, where that is too much but what it
/// hands out is not, whether giving memory back helps.
TEST(AllocatorSearch, WhatFitsIsAskedWithoutReplayingMoreThanNeeded) {
  std::set<bool> answers, gave_back;
  for (const char* name : {"megatron-lm", "pytorch-fsdp", "paddle-2.1"}) {
    const Framework framework = framework_by_name(name);
    for (const char* text :
         {"micro_batch=4", "pp=2,micro_batch=2", "micro_batch=8,recompute=full"}) {
      const Job job = job_of_test();
      const Strategy strategy = parse_strategy(text);
      if (!legal(framework, strategy)) continue;
      for (const Program& program : lower({job, strategy, framework}, {}, Proof::none)) {
        const AllocatorUse whole = replay_allocations(program, framework, kNoLimit);
        EXPECT_FALSE(replay_within(program, framework, Bytes(-1)).has_value());
        for (Bytes room = whole.allocated - Bytes(1 << 20); room <= whole.reserved;
             room += Bytes(1 << 20)) {
          bool fits = whole.reserved <= room;
          if (!fits && whole.allocated <= room) {
            fits = !replay_allocations(program, framework, room).out_of_memory;
            gave_back.insert(fits);
          }
          EXPECT_EQ(replay_within(program, framework, room).has_value(), fits)
              << name << " " << text;
          answers.insert(fits);
        }
        EXPECT_TRUE(replay_within(program, framework, whole.reserved).has_value())
            << name << " " << text;
        EXPECT_FALSE(replay_within(program, framework, whole.allocated - Bytes(1)).has_value());
      }
    }
  }
  EXPECT_EQ(answers.size(), 2u);
  EXPECT_EQ(gave_back.size(), 2u);
}

}  // namespace
}  // namespace plimsoll
