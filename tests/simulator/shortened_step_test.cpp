// Steps from a few of their micro-batches against the same steps whole: the same picosecond on
// every rank from any starts, or no answer; and which steps give an answer.
#include "simulator/ranks/shortened_step.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
// rapidcheck's GoogleTest macros need gtest.h first.
#include <rapidcheck/gtest.h>

#include <optional>

#include "hand_programs.h"
#include "passes/pipeline.h"
#include "simulator/simulate.h"

namespace plimsoll {
namespace {

/// Programs on a cluster, with what running them needs.
struct Ranks {
  Ranks(std::vector<Program> lowered, const CostModel& costs)
      : programs(std::move(lowered)),
        expansions(expand(programs, costs)),
        topology(resolve_channels(expansions, costs)),
        choice(choose_ranks(topology, Folding::folded)) {}
  std::vector<Program> programs;
  std::vector<Expansion> expansions;
  RankTopology topology;
  RankChoice choice;

  std::vector<Picoseconds> whole(std::span<const Picoseconds> starts) const {
    return build_stream_ranks(expansions, topology, choice).engine.run(starts).rank_end;
  }
  std::optional<std::vector<Picoseconds>> shortened(std::span<const Picoseconds> starts) const {
    auto step = ShortenedStep::of(expansions, topology, choice);
    return step ? step->run(starts) : std::nullopt;
  }
  /// Apart by up to so much, in no order.
  std::vector<Picoseconds> starts(std::int64_t apart) const {
    std::vector<Picoseconds> result;
    for (std::size_t c = 0; c < choice.representatives.size(); ++c) {
      result.push_back(Picoseconds(std::int64_t(c * c * 7'777'777) % (apart + 1)));
    }
    return result;
  }
};

Cluster bf16_cluster(std::int64_t per_node) {
  Cluster cluster = hand_cluster(DeviceKind::gpu, per_node);
  cluster.device.peak_bf16 = cluster.device.peak_fp32;
  return cluster;
}

Ranks lowered(const Framework& framework, const char* text, std::int64_t micro_batches,
              std::int64_t per_node, const std::optional<Calibration>& measured = std::nullopt) {
  Job job = read_job(PLIMSOLL_SOURCE_DIR "/tests/gpt-nano.json");
  job.layers = 8;
  job.precision = DType::bf16;
  const Strategy strategy = parse_strategy(text);
  job.global_batch = micro_batches * strategy.micro_batch * strategy.dp * strategy.sharding_degree;
  EXPECT_TRUE(legal(job, strategy, grid_of(strategy).world_size())) << text;
  const CostModel costs(bf16_cluster(per_node), measured, framework);
  return {lower({job, strategy, framework}, {}, Proof::none), costs};
}

/// Hosts that issue faster than these small devices compute.
Framework with_quick_host(Framework framework) {
  framework.host.dispatch.op = Seconds(1e-9);
  framework.host.waits.time = Seconds(1e-9);
  return framework;
}

/// How often the shortened step gives an answer, on several nodes and from several starts.
int expect_same_ends(const Framework& framework, const char* text,
                     const std::optional<Calibration>& measured = std::nullopt) {
  int shown = 0;
  for (const std::int64_t per_node : {1, 3, 16}) {
    const Ranks ranks = lowered(framework, text, 200, per_node, measured);
    for (const std::int64_t apart : {std::int64_t{0}, std::int64_t{90'000'000}}) {
      SCOPED_TRACE(fmt::format("{}: {} on nodes of {}, starts {} ps apart", framework.name, text,
                               per_node, apart));
      const std::vector<Picoseconds> starts = ranks.starts(apart);
      const auto ends = ranks.shortened(starts);
      if (!ends) continue;
      ++shown;
      EXPECT_EQ(*ends, ranks.whole(starts));
    }
  }
  return shown;
}

TEST(ShortenedStep, EndsWhenTheWholeStepDoes) {
  for (const char* name : {"megatron-lm", "megatron-deepspeed", "pytorch-fsdp", "paddle-2.2"}) {
    for (const char* text : {"pp=4", "pp=4,layer_split=3+1+2+2", "mp=2,pp=2,dp=2,recompute=full",
                             "dp=2", "pp=4,dp=4,grad_bucket_bytes=16KiB", "pp=4,virtual_stages=2",
                             "pp=4,schedule=zb_h1", "sharding_degree=4,sharding_stage=3"}) {
      const Framework framework = with_quick_host(framework_by_name(name));
      if (!legal(framework, parse_strategy(text))) continue;
      // Four of six frameworks suffice, since on nodes of 3 two ranks may not find one rhythm.
      EXPECT_GE(expect_same_ends(framework, text), 4) << name << " " << text;
    }
  }
}

TEST(ShortenedStep, EndsWhenTheWholeStepDoesWhereKernelsAndCommunicationsSlowEachOther) {
  int shown = 0;
  for (const char* name : {"megatron-lm", "pytorch-fsdp", "paddle-2.2"}) {
    for (const char* text :
         {"pp=4", "mp=2,pp=2,dp=2,recompute=full", "dp=2", "pp=4,dp=4,grad_bucket_bytes=16KiB",
          "pp=4,virtual_stages=2", "sharding_degree=4,sharding_stage=3",
          "sharding_degree=4,sharding_stage=2,grad_bucket_bytes=16KiB"}) {
      const Framework framework = with_quick_host(framework_by_name(name));
      if (legal(framework, parse_strategy(text)))
        shown += expect_same_ends(framework, text, hand_overlaps());
    }
  }
  EXPECT_GT(shown, 60);
}

// Cycles may begin in the middle of a forward, before which it waits for nothing.
TEST(ShortenedStep, EndsWhenTheWholeStepDoesWhereTheHostReadsEachBatch) {
  int shown = 0;
  for (const char* name : {"megatron-lm", "megatron-lm-2021", "megatron-lm-2022", "pytorch-fsdp"}) {
    for (const char* text : {"pp=4", "mp=2,pp=2,dp=2,recompute=full", "dp=2",
                             "pp=4,virtual_stages=2", "sharding_degree=4,sharding_stage=3"}) {
      Framework framework = with_quick_host(framework_by_name(name));
      framework.host.waits.for_batch = true;
      framework.host.waits.time = Seconds(50e-6);
      if (legal(framework, parse_strategy(text))) shown += expect_same_ends(framework, text);
    }
  }
  EXPECT_GT(shown, 30);
}

TEST(ShortenedStep, HasNoAnswerWhereTheHostHoldsUpTheDevice) {
  Framework framework = framework_by_name("megatron-lm");
  framework.host.dispatch.op = Seconds(1e-3);
  EXPECT_EQ(expect_same_ends(framework, "pp=4"), 0);
}

TEST(ShortenedStep, HasNoAnswerForFewMicroBatches) {
  const Ranks ranks = lowered(framework_by_name("megatron-lm"), "pp=4", 16, 4);
  EXPECT_FALSE(ShortenedStep::of(ranks.expansions, ranks.topology, ranks.choice));
}

TEST(ShortenedStep, IsAsLongAsTheStepWithAllItsTimes) {
  for (const char* text : {"pp=4", "pp=8,recompute=full", "mp=2,pp=4"}) {
    const Ranks ranks = lowered(framework_by_name("megatron-lm"), text, 120, 4);
    const CostModel costs(bf16_cluster(4), std::nullopt, framework_by_name("megatron-lm"));
    const auto time = [&](Detail detail) {
      return simulate(ranks.programs, costs, Folding::folded, detail).step_time;
    };
    EXPECT_EQ(time(Detail::none), time(Detail::calls)) << text;
  }
}

// Groups within a node repeat themselves faster than those across nodes, and meet at the end only.
TEST(ShortenedStep, HasNoAnswerWhereRanksHaveRhythmsOfTheirOwn) {
  HandJob job;
  job.grid.degree = {2, 1, 1, 3, 1, 1, 1, 1};
  job.layers = {1};
  job.micro_batches = 40;
  job.elements = 64;
  Framework framework;
  framework.host.dispatch.op = Seconds(1e-9);
  const CostModel costs(hand_cluster(DeviceKind::gpu, 3), std::nullopt, framework);
  const Ranks ranks(hand_pipeline(job), costs);
  EXPECT_FALSE(ranks.shortened(ranks.starts(0)));
}

RC_GTEST_PROP(ShortenedStepRandom, EndsWhenTheWholeStepDoes, ()) {
  HandJob job;
  const std::int64_t stages = *rc::gen::inRange(1, 6);
  job.grid.degree = {*rc::gen::inRange(1, 4), 1, 1, *rc::gen::inRange(1, 4), stages, 1, 1, 1};
  for (std::int64_t i = 0; i < stages; ++i) job.layers.push_back(*rc::gen::inRange(1, 5));
  job.micro_batches = *rc::gen::inRange(40, 160);
  job.elements = *rc::gen::element(64, 256, 4096);
  Framework framework;
  framework.host.dispatch.op = Seconds(double(*rc::gen::inRange(1, 4000)) * 1e-9);
  const CostModel costs(hand_cluster(DeviceKind::gpu, *rc::gen::inRange(1, 9)), std::nullopt,
                        framework);
  const Ranks ranks(hand_pipeline(job), costs);
  const std::vector<Picoseconds> starts = ranks.starts(*rc::gen::inRange(0, 1'000'000'000));
  const auto ends = ranks.shortened(starts);
  RC_TAG(ends ? "an answer" : "none");
  if (ends) RC_ASSERT(*ends == ranks.whole(starts));
}

TEST(CallCycles, AreTheMicroBatchesBetweenTheFirstAndTheLast) {
  const Ranks ranks = lowered(framework_by_name("megatron-lm"), "pp=4", 64, 4);
  for (const Program& program : ranks.programs) {
    const CallCycles cycles = call_cycles(program, 1);
    // A stage waits for as many micro-batches as there are stages after it.
    EXPECT_GE(cycles.count, std::size_t(64 - 2 * (4 - program.stage)));
    EXPECT_LE(cycles.count, std::size_t(64 - (3 - program.stage)));
    for (std::size_t c = cycles.first; c + cycles.length < cycles.end(); ++c) {
      EXPECT_EQ(program.calls[c].routine, program.calls[c + cycles.length].routine);
    }
    EXPECT_EQ(call_cycles(program, 1000).count, 0u);
  }
}

TEST(CallCycles, OfSeveralPartsOfTheModelAreOfAsManyMicroBatchesAsStages) {
  const Ranks ranks = lowered(framework_by_name("megatron-lm"), "pp=4,virtual_stages=2", 64, 4);
  for (const Program& program : ranks.programs) {
    EXPECT_LE(call_cycles(program, 1).count, 8u);
    EXPECT_GE(call_cycles(program, 4).count, 10u);
  }
}

TEST(SkippedCalls, IsStoodForByTheCyclesBefore) {
  const SkippedCalls skipped{20, 40, {10, 5, 8}};  // cycles end at 50
  EXPECT_EQ(skipped.awaited(15, 12), 12u);         // before
  EXPECT_EQ(skipped.awaited(41, 40), 20u);         // what stays moves up
  EXPECT_EQ(skipped.awaited(41, 38), 18u);         // in place of a skipped call
  EXPECT_EQ(skipped.awaited(55, 45), 25u);
  EXPECT_EQ(skipped.awaited(55, 3), 3u);
  EXPECT_EQ(skipped.awaited(55, 30), SkippedCalls::kNothing);
}

}  // namespace
}  // namespace plimsoll
