// Simulation of whole Programs: durations, steady state, memory, and folded against unfolded.
#include "simulator/simulate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "hand_programs.h"
#include "simulator/ranks/expand.h"
#include "simulator/ranks/topology.h"
#include "tests/graph/text_reader.h"

namespace plimsoll {
namespace {

Grid grid_of(std::int64_t mp, std::int64_t dp, std::int64_t pp) {
  Grid grid;
  grid.degree = {mp, 1, 1, dp, pp, 1, 1, 1};
  return grid;
}

Calibration dispatch_only(double op_ns, double call_ns) {
  Calibration calibration;
  calibration.dispatch_op = {Seconds(op_ns * 1e-9), Seconds(0), 7, false};
  calibration.dispatch_call = {Seconds(call_ns * 1e-9), Seconds(0), 7, false};
  return calibration;
}

CostModel model(DeviceKind kind, std::int64_t devices_per_node = 4) {
  return CostModel(hand_cluster(kind, devices_per_node), dispatch_only(10, 5), Framework{});
}

std::int64_t nanoseconds(Seconds time) { return std::llround(time.value() * 1e9); }

TEST(Simulate, SerialStepOnTheHostIsASumOverItsOps) {
  // 1 layer, 1 micro-batch, groups of one: 7 ops in 4 calls. Local: forward 1, backward 2, norm 1
  // ops that read and write 256 floats: 2048 bytes at 1 byte/ns.
  const auto programs = hand_pipeline({grid_of(1, 1, 1), {1}, 1});
  const Simulation simulation = simulate(programs, model(DeviceKind::cpu_core));
  EXPECT_EQ(nanoseconds(simulation.step_time), 4 * 2048 + 8 * 10 + 4 * 5);
  EXPECT_EQ(simulation.timeline.intervals.size(), 8u);
  EXPECT_EQ(simulation.timeline.intervals[0].begin.count(), 15'000);
}

TEST(Simulate, TensorParallelOnTheHostAddsTheTransfers) {
  // Two ranks arrive together, so both are charged: an all-reduce over two moves 1024 bytes at
  // 0.1 byte/ns and takes 2 steps of 100 ns. There are three: forward, backward, norm.
  const auto programs = hand_pipeline({grid_of(2, 1, 1), {1}, 1});
  const Simulation simulation = simulate(programs, model(DeviceKind::cpu_core));
  const std::int64_t reduce = 10'240 + 200;
  EXPECT_EQ(nanoseconds(simulation.step_time), 4 * 2048 + 8 * 10 + 4 * 5 + 3 * reduce);
}

TEST(Simulate, StreamsHideTheBucketOnlyBehindWhatDoesNotWaitForIt) {
  const auto programs = hand_pipeline({grid_of(1, 2, 1), {1}, 1});
  const Simulation host = simulate(programs, model(DeviceKind::cpu_core));
  const Simulation streams = simulate(programs, model(DeviceKind::gpu));
  // The bucket has 4096 bytes; the norm waits for it.
  const std::int64_t bucket = 40'960 + 200, norm = 10'240 + 200;
  EXPECT_EQ(nanoseconds(host.step_time), 4 * 2048 + 8 * 10 + 4 * 5 + bucket + norm);
  // On streams dispatch hides behind the first op, except that of the first: 15.
  EXPECT_EQ(nanoseconds(streams.step_time), 15 + 4 * 2048 + bucket + norm);
}

TEST(Simulate, ProvenanceOfADatasheetStepIsDatasheet) {
  const auto programs = hand_pipeline({grid_of(2, 1, 1), {1}, 1});
  const Simulation simulation = simulate(programs, model(DeviceKind::cpu_core));
  EXPECT_EQ(simulation.worst, Provenance::datasheet);
  EXPECT_EQ(nanoseconds(simulation.by_provenance[std::size_t(Provenance::datasheet)]),
            4 * 2048 + 3 * (10'240 + 200));
}

TEST(Simulate, MemoryCurveFollowsTheIssueOrder) {
  const auto programs = hand_pipeline({grid_of(1, 1, 1), {1}, 1});
  const Simulation simulation = simulate(programs, model(DeviceKind::cpu_core));
  ASSERT_EQ(simulation.timeline.memory.size(), 1u);
  const RankMemory& memory = simulation.timeline.memory[0];
  // 1024 saved from the first call on, 100 (rounded up to 128) in call 1 only.
  EXPECT_EQ(memory.peak.count(), 1024 + 128);
  ASSERT_EQ(memory.curve.size(), 3u);
  EXPECT_EQ(memory.curve[0].by_role[std::size_t(TensorRole::saved)].count(), 1024);
  EXPECT_EQ(memory.curve[1].by_role[std::size_t(TensorRole::activation)].count(), 128);
  EXPECT_EQ(memory.curve[2].by_role[std::size_t(TensorRole::activation)].count(), 0);
  // Call 1 follows dispatch (15), the forward op (2048) and its all-reduce (10), then 15 of its
  // own.
  EXPECT_EQ(memory.curve[1].time.count(), (15 + 2048 + 10 + 15) * 1000);
}

/// One stage of two: works for `before` ns, meets the other, works for `after` ns.
Program meeting_stage(std::int64_t stage, std::int64_t before, std::int64_t after) {
  // gelu reads and writes 4 bytes per element at 1 byte per ns.
  const auto text = fmt::format(
      "program meeting.stage{}\n"
      "grid mp=1 cp=1 sharding=1 dp=1 pp=2 order=mp,cp,sharding,dp,pp\n"
      "class stage={} sharding_degree=1 micro_batch=1 micro_batches=1 arena_bytes=0\n"
      "routine 0 work forward frame_bytes=0\n"
      "tensor %0 a f32[{}] activation at=frame+0\n"
      "tensor %1 b f32[{}] activation at=frame+0\n"
      "tensor %2 c f32[2] activation at=frame+0\n"
      "op gelu forward (%0) -> (%0)\n"
      "op all_reduce forward (%2) -> (%2) stream=world group=pp waits=0\n"
      "op gelu forward (%1) -> (%1) waits=1\n"
      "call 0 0\n",
      stage, stage, before / 8, after / 8);
  return parse_program(text, "meeting");
}

TEST(Simulate, TheStepIsTheSteadyPeriodNotTheFirstStep) {
  // Stage 0 works 1600 before the meeting and 160 after it, stage 1 160 and 1280. Dispatch is 15
  // for the first op and 10 for the others; the all-reduce takes 2 * 100 + 8 / 0.1 = 280. The first
  // step ends with stage 1, at 15 + 1600 + 10 + 280 + 10 + 1280 = 3195. From then on stage 0 alone
  // decides: 15 + 1600 + 10 + 280 + 10 + 160 = 2075.
  const std::vector<Program> programs = {meeting_stage(0, 1600, 160), meeting_stage(1, 160, 1280)};
  EXPECT_EQ(nanoseconds(simulate(programs, model(DeviceKind::cpu_core)).step_time), 2075);
}

struct FoldingCase {
  HandJob job;
  DeviceKind kind;
  std::int64_t devices_per_node;
};

std::map<std::int64_t, Picoseconds> ends_by_rank(const Simulation& simulation) {
  std::map<std::int64_t, Picoseconds> ends;
  for (const Interval& interval : simulation.timeline.intervals) {
    ends[interval.rank] = std::max(ends[interval.rank], interval.end);
  }
  return ends;
}

class Folded : public testing::TestWithParam<FoldingCase> {};

TEST_P(Folded, EqualsUnfolded) {
  const auto programs = hand_pipeline(GetParam().job);
  const CostModel costs = model(GetParam().kind, GetParam().devices_per_node);
  const Simulation folded = simulate(programs, costs, Folding::folded);
  const Simulation unfolded = simulate(programs, costs, Folding::unfolded);
  EXPECT_EQ(folded.step_time.value(), unfolded.step_time.value());
  EXPECT_EQ(folded.worst, unfolded.worst);
  const auto folded_ends = ends_by_rank(folded), ends = ends_by_rank(unfolded);
  std::map<std::int64_t, RankMemory> folded_memory;
  for (const RankMemory& memory : folded.timeline.memory) folded_memory[memory.rank] = memory;
  ASSERT_EQ(std::int64_t(unfolded.timeline.memory.size()), GetParam().job.grid.world_size());
  for (const RankMemory& memory : unfolded.timeline.memory) {
    const std::int64_t stands = folded.represented_by[std::size_t(memory.rank)];
    EXPECT_EQ(folded_ends.at(stands), ends.at(memory.rank)) << "rank " << memory.rank;
    EXPECT_EQ(folded_memory.at(stands).peak, memory.peak) << "rank " << memory.rank;
    EXPECT_EQ(folded_memory.at(stands).by_role, memory.by_role);
    EXPECT_EQ(folded_memory.at(stands).curve, memory.curve);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Pipelines, Folded,
    testing::Values(
        // 16 ranks, uneven layers, on nodes of 4 and on irregular nodes of 3 and 5.
        FoldingCase{{grid_of(2, 2, 4), {3, 1, 2, 4}, 6}, DeviceKind::gpu, 4},
        FoldingCase{{grid_of(2, 2, 4), {3, 1, 2, 4}, 6}, DeviceKind::cpu_core, 4},
        FoldingCase{{grid_of(2, 2, 4), {3, 1, 2, 4}, 6}, DeviceKind::gpu, 3},
        FoldingCase{{grid_of(2, 2, 4), {3, 1, 2, 4}, 6}, DeviceKind::cpu_core, 3},
        FoldingCase{{grid_of(2, 2, 4), {3, 1, 2, 4}, 6}, DeviceKind::cpu_core, 5},
        FoldingCase{{grid_of(2, 2, 4), {1, 1, 1, 1}, 3}, DeviceKind::cpu_core, 5},
        FoldingCase{{grid_of(4, 3, 2), {2, 3}, 5}, DeviceKind::gpu, 5},
        FoldingCase{{grid_of(4, 3, 2), {2, 3}, 5}, DeviceKind::cpu_core, 7},
        FoldingCase{{grid_of(1, 8, 1), {2}, 2}, DeviceKind::cpu_core, 3}));

std::size_t classes(const HandJob& job, std::int64_t devices_per_node) {
  const auto programs = hand_pipeline(job);
  const CostModel costs = model(DeviceKind::gpu, devices_per_node);
  const auto found = behaviour_classes(resolve_channels(expand(programs, costs), costs));
  return *std::max_element(found.begin(), found.end()) + std::size_t{1};
}

TEST(Classes, OnARegularClusterThereIsOnePerStage) {
  EXPECT_EQ(classes({grid_of(2, 2, 4), {3, 1, 2, 4}, 2}, 4), 4u);
  EXPECT_EQ(classes({grid_of(8, 4, 1), {1}, 1}, 8), 1u);
}

TEST(Classes, AGroupAcrossNodesSplitsItsStage) {
  // Nodes of 3 ranks: mp pairs {0,1} {2,3} {4,5} {6,7}; 2|3 lie on two nodes, 4|5 do not, 6|7 do
  // not. So rank pair {2,3} behaves unlike the others.
  EXPECT_EQ(classes({grid_of(2, 4, 1), {1}, 1}, 3), 2u);
}

TEST(Classes, ASlowLinkSplitsStagesBehindItToo) {
  // Nodes of 8, three stages of dp 3: only 5 -> 8 crosses nodes. So 5 and 8 stand apart, and 2,
  // whose own links are all fast, because it sends to 5: {0,1} {2} {3,4} {5} {6,7} {8}.
  EXPECT_EQ(classes({grid_of(1, 3, 3), {1, 1, 1}, 1}, 8), 6u);
}

TEST(Expand, AWaitOnAPortIsOneItemAndOnACallAllItsCommunications) {
  const auto programs = hand_pipeline({grid_of(2, 1, 1), {1}, 1});
  const auto host = unroll(expand(programs, model(DeviceKind::cpu_core))[0]);
  // Items: 0 1 forward, 2 3 4 backward (waits for all of call 0), 5 bucket (port: item 4), 6 7
  // norm.
  EXPECT_EQ(host[2].waits, std::vector<std::uint32_t>{1});
  EXPECT_EQ(host[5].waits, std::vector<std::uint32_t>{4});
  const auto streams = unroll(expand(programs, model(DeviceKind::gpu))[0]);
  // Streams: both ends of call 0, and each stream of call 1 waits.
  EXPECT_EQ(streams[2].waits, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(streams[3].waits, (std::vector<std::uint32_t>{2, 0, 1}));
}

TEST(Simulate, LessDetailChangesNothingElse) {
  const auto programs = hand_pipeline({grid_of(2, 2, 4), {3, 1, 2, 4}, 6});
  for (const DeviceKind kind : {DeviceKind::gpu, DeviceKind::cpu_core}) {
    const CostModel costs = model(kind, 4);
    const Simulation all = simulate(programs, costs);
    const Simulation critical = simulate(programs, costs, Folding::folded, Detail::critical);
    const Simulation none = simulate(programs, costs, Folding::folded, Detail::none);
    EXPECT_EQ(all.step_time.value(), none.step_time.value());
    EXPECT_EQ(all.critical_rank, none.critical_rank);
    EXPECT_TRUE(none.timeline.intervals.empty());
    EXPECT_TRUE(none.critical.empty());
    EXPECT_TRUE(critical.timeline.intervals.empty());
    EXPECT_FALSE(critical.critical.empty());
    EXPECT_EQ(critical.critical, all.critical);
    std::vector<Interval> of_rank;
    for (const Interval& interval : all.timeline.intervals) {
      if (interval.rank == all.critical_rank) of_rank.push_back(interval);
    }
    ASSERT_EQ(of_rank.size(), all.critical.size());
    const Simulation calls = simulate(programs, costs, Folding::folded, Detail::calls_and_critical);
    EXPECT_EQ(calls.critical, all.critical);
    EXPECT_EQ(calls.critical_intervals, of_rank);
    std::vector<CriticalOp> ops = all.critical;
    std::ranges::sort(ops, {}, [](const CriticalOp& op) {
      return std::tuple(op.begin, op.stream, op.end, op.kind, op.posted);
    });
    std::ranges::sort(of_rank, {}, [](const Interval& one) {
      return std::tuple(one.begin, one.stream, one.end, *one.kind, one.posted);
    });
    for (std::size_t i = 0; i < ops.size(); ++i) {
      EXPECT_EQ(std::tuple(ops[i].posted, ops[i].begin, ops[i].end, ops[i].kind, ops[i].stream,
                           ops[i].phase),
                std::tuple(of_rank[i].posted, of_rank[i].begin, of_rank[i].end, *of_rank[i].kind,
                           of_rank[i].stream, of_rank[i].phase));
    }
  }
}

}  // namespace
}  // namespace plimsoll
