// Folded equals unfolded on lowered Programs and on random pipelines over irregular clusters.
#include <gtest/gtest.h>
// rapidcheck's GoogleTest macros need gtest.h first.
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "hand_programs.h"
#include "passes/pipeline.h"
#include "passes/strategy/strategy.h"
#include "simulator/simulate.h"

namespace plimsoll {
namespace {

/// Unfolded, most communications meet other ranks and run op by op; folded, whole calls run as
/// composed routines. So these tests compare the two ways to run as well.
///
/// A RankOutcome has the results that must agree, from the rank's own simulation or from that of
/// the rank that stands for it.
struct RankOutcome {
  Picoseconds first_begin{std::int64_t{1} << 60}, end, busy;
  Bytes peak;
  bool operator==(const RankOutcome&) const = default;
};

std::vector<RankOutcome> outcomes(const Simulation& simulation) {
  std::map<std::int64_t, RankOutcome> simulated;
  for (const Interval& interval : simulation.timeline.intervals) {
    RankOutcome& outcome = simulated[interval.rank];
    outcome.first_begin = std::min(outcome.first_begin, interval.begin);
    outcome.end = std::max(outcome.end, interval.end);
    outcome.busy += interval.end - interval.begin;
  }
  for (const RankMemory& memory : simulation.timeline.memory) {
    simulated[memory.rank].peak = memory.peak;
  }
  std::vector<RankOutcome> result;
  for (std::int64_t rank : simulation.represented_by) result.push_back(simulated.at(rank));
  return result;
}

std::size_t simulated_ranks(const Simulation& simulation) {
  return simulation.timeline.memory.size();
}

Job eight_layers() {
  Job job = read_job(PLIMSOLL_SOURCE_DIR "/tests/gpt-nano.json");
  job.layers = 8;
  return job;
}

void expect_equal(const Strategy& strategy, DeviceKind kind, std::int64_t devices_per_node) {
  const Job job = eight_layers();
  const Framework framework = bundled_framework();
  ASSERT_TRUE(bool(legal(job, strategy, grid_of(strategy).world_size())));
  const auto programs = lower({job, strategy, framework});
  const CostModel costs(hand_cluster(kind, devices_per_node), std::nullopt, framework);
  const Simulation folded = simulate(programs, costs, Folding::folded);
  const Simulation unfolded = simulate(programs, costs, Folding::unfolded);
  EXPECT_EQ(folded.step_time.value(), unfolded.step_time.value());
  EXPECT_EQ(outcomes(folded), outcomes(unfolded));
  EXPECT_EQ(std::int64_t(simulated_ranks(unfolded)), grid_of(strategy).world_size());
  EXPECT_LE(simulated_ranks(folded), simulated_ranks(unfolded));
}

/// pp4 x dp2 x mp2 with uneven layers.
Strategy uneven() {
  Strategy strategy;
  strategy.mp = 2, strategy.pp = 4, strategy.dp = 2;
  strategy.pipeline.layer_split = {3, 1, 2, 2};
  return strategy;
}

TEST(FoldedLowered, EqualsUnfoldedOnRegularNodes) {
  expect_equal(uneven(), DeviceKind::gpu, 4);
  expect_equal(uneven(), DeviceKind::cpu_core, 4);
}

TEST(FoldedLowered, EqualsUnfoldedOnIrregularNodes) {
  for (const std::int64_t devices : {3, 5, 7}) {
    expect_equal(uneven(), DeviceKind::gpu, devices);
    expect_equal(uneven(), DeviceKind::cpu_core, devices);
  }
}

TEST(FoldedLowered, EqualsUnfoldedWithShardingAndRecompute) {
  Strategy strategy = uneven();
  strategy.dp = 1, strategy.sharding_degree = 2, strategy.sharding_stage = 1;
  strategy.recompute = Recompute::full;
  expect_equal(strategy, DeviceKind::gpu, 3);
  expect_equal(strategy, DeviceKind::cpu_core, 3);
}

TEST(FoldedLowered, OneRankPerStageIsEnoughOnRegularNodes) {
  const Job job = eight_layers();
  const auto programs = lower({job, uneven(), bundled_framework()});
  const CostModel costs(hand_cluster(DeviceKind::gpu, 4), std::nullopt, bundled_framework());
  EXPECT_EQ(simulated_ranks(simulate(programs, costs)), 4u);
}

/// One node has devices that move half as much.
Cluster with_slow_node(Cluster cluster, std::int64_t node) {
  OtherDevices slow{node, 1, cluster.device, {}};
  slow.device.memory_bandwidth = BytesPerSecond(cluster.device.memory_bandwidth.value() / 2);
  cluster.other_devices.push_back(slow);
  return cluster;
}

/// Time that a rank computes.
Picoseconds busy(const Simulation& simulation, std::int64_t rank) {
  Picoseconds sum;
  for (const Interval& interval : simulation.timeline.intervals) {
    const bool own = interval.rank == rank && interval.stream == Stream::compute;
    if (own) sum += interval.end - interval.begin;
  }
  return sum;
}

TEST(FoldedLowered, RanksStartFromTheKindOfTheirDevice) {
  HandJob job;
  job.grid.degree[std::size_t(Axis::dp)] = 4;
  job.layers = {3};
  const auto programs = hand_pipeline(job);
  for (const DeviceKind kind : {DeviceKind::gpu, DeviceKind::cpu_core}) {
    const Cluster fast = hand_cluster(kind, 1), mixed = with_slow_node(fast, 2);
    Cluster slow = fast;
    slow.device = mixed.other_devices[0].device;
    const auto run = [&](const Cluster& cluster, Folding folding) {
      return simulate(programs, CostModel(cluster, std::nullopt, Framework{}), folding);
    };
    const Simulation folded = run(mixed, Folding::folded), unfolded = run(mixed, Folding::unfolded);
    EXPECT_EQ(folded.represented_by, (std::vector<std::int64_t>{0, 0, 2, 0}));
    EXPECT_EQ(folded.critical_rank, 2);
    EXPECT_EQ(folded.step_time, unfolded.step_time);
    EXPECT_EQ(outcomes(folded), outcomes(unfolded));
    // All wait for the slow one, whose own ops take as long as if all were slow.
    const Simulation all_fast = run(fast, Folding::folded), all_slow = run(slow, Folding::folded);
    EXPECT_GT(folded.step_time, all_fast.step_time);
    EXPECT_EQ(folded.step_time, all_slow.step_time);
    EXPECT_EQ(busy(folded, 2), busy(all_slow, 0));
    EXPECT_EQ(busy(folded, 0), busy(all_fast, 0));
    EXPECT_GT(busy(folded, 2), busy(folded, 0));
  }
}

RC_GTEST_PROP(FoldedRandom, EqualsUnfolded, ()) {
  HandJob job;
  const std::int64_t stages = *rc::gen::inRange(1, 5);
  job.grid.degree = {*rc::gen::inRange(1, 5), 1, 1, *rc::gen::inRange(1, 5), stages, 1, 1, 1};
  if (*rc::gen::arbitrary<bool>()) {
    job.grid.order = {Axis::dp, Axis::cp, Axis::pp, Axis::sharding, Axis::mp};
  }
  for (std::int64_t i = 0; i < stages; ++i) job.layers.push_back(*rc::gen::inRange(1, 4));
  job.micro_batches = *rc::gen::inRange(1, 6);
  const auto programs = hand_pipeline(job);
  const DeviceKind kind = *rc::gen::element(DeviceKind::gpu, DeviceKind::cpu_core);
  Cluster cluster = hand_cluster(kind, *rc::gen::inRange(1, 9));
  if (*rc::gen::arbitrary<bool>()) cluster = with_slow_node(cluster, *rc::gen::inRange(0, 4));
  const CostModel costs(cluster, std::nullopt, Framework{});
  const Simulation folded = simulate(programs, costs, Folding::folded);
  const Simulation unfolded = simulate(programs, costs, Folding::unfolded);
  RC_ASSERT(folded.step_time.value() == unfolded.step_time.value());
  RC_ASSERT(outcomes(folded) == outcomes(unfolded));
}

/// Processes that share links and slow their kernels, at every size alike.
Calibration random_processes() {
  Calibration calibration;
  calibration.communicator = CommunicatorKind::mpi;
  const auto number = [](int most) { return double(*rc::gen::inRange(1, most)); };
  calibration.dispatch_op.median = Seconds(number(9) * 1e-9);
  calibration.wake_up.median = Seconds(number(99) * 1e-9);
  calibration.sleeps_after = Seconds(number(999) * 1e-9);
  const auto add = [&](OpKind kind, std::int64_t ranks, std::int64_t nodes, std::int64_t at_once) {
    for (std::int64_t bytes : {64, 4096}) {
      calibration.collectives.push_back({kind,
                                         ranks,
                                         Bytes(bytes),
                                         {Seconds(number(9999) * 1e-9), Seconds(0), 7, false},
                                         nodes,
                                         at_once,
                                         CommunicatorKind::mpi});
    }
  };
  for (std::int64_t ranks : {2, 4}) {
    add(OpKind::all_reduce, ranks, 1, 1);
    add(OpKind::all_reduce, ranks, 1, 2);
    add(OpKind::all_reduce, ranks, 2, 1);
    add(OpKind::all_reduce, ranks, 2, 3);
  }
  add(OpKind::send, 2, 1, 1);
  add(OpKind::send, 2, 2, 1);
  add(OpKind::send, 2, 2, 2);
  for (OpKind kind : {OpKind::all_reduce, OpKind::send}) {
    for (OpKind compute : {OpKind::matmul, OpKind::add}) {
      calibration.overlaps.push_back({compute, kind, CommunicatorKind::mpi, 2, Bytes(100),
                                      number(30) / 10, number(30) / 10, 7, 0, 0});
    }
  }
  return calibration;
}

RC_GTEST_PROP(FoldedRandom, EqualsUnfoldedForProcesses, ()) {
  HandJob job;
  const std::int64_t stages = *rc::gen::inRange(1, 4);
  job.grid.degree = {*rc::gen::inRange(1, 4), 1, 1, *rc::gen::inRange(1, 5), stages, 1, 1, 1};
  for (std::int64_t i = 0; i < stages; ++i) job.layers.push_back(*rc::gen::inRange(1, 4));
  job.micro_batches = *rc::gen::inRange(1, 6);
  const auto programs = hand_pipeline(job);
  Cluster cluster = hand_cluster(DeviceKind::cpu_core, *rc::gen::inRange(1, 6));
  const CostModel costs(cluster, random_processes(), Framework{});
  RC_ASSERT(costs.execution() == Execution::processes);
  const Simulation folded = simulate(programs, costs, Folding::folded);
  const Simulation unfolded = simulate(programs, costs, Folding::unfolded);
  RC_ASSERT(folded.step_time.value() == unfolded.step_time.value());
  RC_ASSERT(outcomes(folded) == outcomes(unfolded));
}

}  // namespace
}  // namespace plimsoll
