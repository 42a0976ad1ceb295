// Collectives over levels: times a reader can compute by hand.
#include "simulator/costs/collective_cost.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/cluster/network_kind.h"
#include "models/presets/presets.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {
namespace {

using Ranks = std::vector<std::int64_t>;

/// Nodes of 8 in pods of 4 nodes: 100 GB/s, 10 GB/s, 5 GB/s; 1, 5 and 10 us.
Cluster pods() {
  Cluster cluster;
  cluster.devices_per_node = 8;
  cluster.device.memory_bandwidth = BytesPerSecond(1e12);
  cluster.levels = {{"node", 8, BytesPerSecond(100e9), Seconds(1e-6)},
                    {"pod", 32, BytesPerSecond(10e9), Seconds(5e-6)},
                    {"all", 0, BytesPerSecond(5e9), Seconds(10e-6)}};
  return cluster;
}

Ranks strided(std::int64_t first, std::int64_t count, std::int64_t stride) {
  Ranks ranks(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) ranks[std::size_t(i)] = first + i * stride;
  return ranks;
}

constexpr Bytes kGigabyte(1'000'000'000);

double milliseconds(const Cluster& cluster, OpKind kind, const Ranks& ranks,
                    Bytes payload = kGigabyte) {
  const GroupSpread spread = spread_over(cluster.levels, ranks);
  return 1e3 * modelled_communication(kind, payload, cluster, spread).time.value();
}

TEST(Spread, SaysHowTheRanksLieOnEveryLevel) {
  const Cluster cluster = pods();
  const auto spread = [&](const Ranks& ranks) { return spread_over(cluster.levels, ranks); };
  EXPECT_EQ(spread({0, 1, 2, 3}), (GroupSpread{4, 0, {}, {}}));
  EXPECT_EQ(spread({4, 5, 6, 7}), spread({0, 1, 2, 3}));
  EXPECT_EQ(spread({7, 8}), (GroupSpread{2, 1, {2}, {1}}));
  EXPECT_EQ(spread(strided(0, 16, 1)), (GroupSpread{16, 1, {2}, {8}}));
  EXPECT_EQ(spread(strided(0, 4, 8)), (GroupSpread{4, 1, {4}, {1}}));
  EXPECT_EQ(spread(strided(0, 8, 8)), (GroupSpread{8, 2, {8, 2}, {1, 4}}));
  EXPECT_EQ(spread(strided(0, 12, 1)), (GroupSpread{12, 1, {2}, {4}}));  // 8 in one, 4 in the other
  EXPECT_EQ(spread(strided(0, 64, 1)), (GroupSpread{64, 2, {8, 2}, {8, 32}}));
}

TEST(Collective, WithinANodeARing) {
  const Cluster cluster = pods();
  // 8 ranks: 7/8 GB per round over 100 GB/s, 7 steps of 1 us.
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_gather, strided(0, 8, 1)), 8.75 + 0.007, 1e-9);
  EXPECT_NEAR(milliseconds(cluster, OpKind::reduce_scatter, strided(8, 8, 1)), 8.757, 1e-9);
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_reduce, strided(0, 8, 1)), 17.5 + 0.014, 1e-9);
}

TEST(Collective, ToOrFromARootAllPassesEveryRank) {
  const Cluster cluster = pods();
  // A chain of 8 ranks: 1 GB over 100 GB/s, 7 steps of 1 us.
  EXPECT_NEAR(milliseconds(cluster, OpKind::broadcast, strided(0, 8, 1)), 10 + 0.007, 1e-9);
  EXPECT_NEAR(milliseconds(cluster, OpKind::reduce, strided(0, 8, 1)), 10 + 0.007, 1e-9);
}

TEST(Collective, ANodeSendsOverTheNicsOfItsOwnRanks) {
  const Cluster cluster = pods();
  // 16 ranks on 2 nodes: 15/16 GB leave a node over 8 x 10 GB/s; 14 steps inside, 1 between.
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_gather, strided(0, 16, 1)),
              1e3 * 15 / 16 / 80 + 0.014 + 0.005, 1e-9);
  // One rank on each of 4 nodes: one NIC each.
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_gather, strided(0, 4, 8)), 75 + 0.015, 1e-9);
  // The node with the fewest ranks is the slowest: 3 of 10 GB/s.
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_gather, {0, 1, 2, 3, 4, 8, 9, 10}),
              1e3 * 7 / 8 / 30 + 0.006 + 0.005, 1e-9);
}

TEST(Collective, AnAllReduceReducesInsideBeforeItLeaves) {
  const Cluster cluster = pods();
  // 2 nodes: between them 2 x 1/2 GB over 80 GB/s = 12.5 ms, inside 2 x 7/8 GB over 100 GB/s.
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_reduce, strided(0, 16, 1)),
              17.5 + 2 * (0.007 + 0.005), 1e-9);
  // 2 pods of 4 nodes: between pods 2 x 1/2 GB over 32 x 5 GB/s, in the pod 2 x 3/4 GB over 80.
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_reduce, strided(0, 64, 1)),
              18.75 + 2 * (0.007 + 2 * 0.005 + 0.010), 1e-9);
}

TEST(Collective, LatencyGrowsWithTheLogarithmOfNodes) {
  const Cluster cluster = pods();
  const auto small = [&](const Ranks& ranks) {
    return milliseconds(cluster, OpKind::all_reduce, ranks, Bytes(8));
  };
  EXPECT_NEAR(small(strided(0, 4, 8)), 2 * 3 * 0.005,
              1e-5);  // nodes are the innermost level it has
  EXPECT_NEAR(small(strided(0, 32, 1)), 2 * (0.007 + 2 * 0.005), 1e-5);
  EXPECT_NEAR(small(strided(0, 512, 1)), 2 * (0.007 + 2 * 0.005 + 4 * 0.010), 1e-5);
  // An all-gather has the ring only: one step per rank.
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_gather, strided(0, 32, 1), Bytes(8)),
              28 * 0.001 + 3 * 0.005, 1e-5);
}

TEST(Collective, ATokenMayTravelOnceToEachNodeAndRank) {
  const Cluster cluster = pods();
  const auto exchanged = [&](const Ranks& ranks, std::int64_t rows, std::int64_t groups = 1,
                             std::int64_t top_groups = 1) {
    GroupSpread spread = spread_over(cluster.levels, ranks);
    spread.token_rows = {rows, groups, top_groups};
    return modelled_communication(OpKind::exchange_rows, kGigabyte, cluster, spread).time.value();
  };
  const Ranks node = strided(0, 8, 1), nodes = strided(0, 32, 1);
  // Ranks that have one or more of 8 rows of a token are 0.66 x 8 in a node of 8.
  const double steps = 1e-6, alone = exchanged(node, 1) - steps;
  EXPECT_NEAR(exchanged(node, 8) - steps, alone * (1 - std::pow(0.875, 8)), 1e-9);
  // 3/4 of the rows leave a node of four over a NIC of 10 GB/s. Of 8 rows of a token, 0.9 x 4
  // nodes have one or more.
  const double all = 0.75 / 10, latency = 1e-6 + 5e-6;
  EXPECT_NEAR(exchanged(nodes, 1), all + 1e-6 + (3 + 24 / 32.0) * 5e-6, 1e-9);
  EXPECT_NEAR(exchanged(nodes, 8) - latency, all * 4 / 8 * (1 - std::pow(0.75, 8)), 1e-9);
  // The rows of a token in one group, which a node has, leave for one node.
  EXPECT_NEAR(exchanged(nodes, 8, 32, 1) - latency, all / 8, 1e-9);
  // Two of 8 groups are on one node of two groups in 1 of 7 cases, and on two in the other cases.
  EXPECT_NEAR(exchanged(nodes, 8, 8, 2) - latency, all / 8 * (2 - 1.0 / 7), 1e-9);
  // Two of four groups have half of the four nodes.
  EXPECT_NEAR(exchanged(nodes, 8, 4, 2) - latency, all * 2 / 8 * (1 - std::pow(0.5, 8)), 1e-9);
}

TEST(Collective, AnExchangeTakesAStepForEachPeerOfCores) {
  Cluster cluster = pods();
  cluster.device.kind = DeviceKind::cpu_core;
  const auto steps = [&](const Ranks& ranks) {
    return 1e3 * milliseconds(cluster, OpKind::all_to_all, ranks, Bytes(0));
  };
  EXPECT_NEAR(steps(strided(0, 2, 1)), 1, 1e-9);  // us
  EXPECT_NEAR(steps(strided(0, 8, 1)), 7, 1e-9);
  EXPECT_NEAR(steps(strided(0, 16, 1)), 7 + 8 * 5, 1e-9);  // 8 peers on the other node
  EXPECT_NEAR(steps(strided(0, 64, 1)), 7 + 24 * 5 + 32 * 10, 1e-9);
}

TEST(Collective, AnExchangeOfGpusTakesLatenciesOfTheNetwork) {
  const Cluster cluster = pods();
  const auto steps = [&](const Ranks& ranks, std::int64_t for_each) {
    const Bytes payload(for_each * std::int64_t(ranks.size()));
    const LinkTime time = modelled_link_time(OpKind::all_to_all, payload, cluster,
                                             spread_over(cluster.levels, ranks));
    return time.latency.value() * 1e6;
  };
  EXPECT_NEAR(steps(strided(0, 8, 1), 1 << 20), 1, 1e-9);  // us; in a node it is one
  // 8 peers are on the other node. Messages of 64 KiB and more take two latencies more.
  EXPECT_NEAR(steps(strided(0, 16, 1), 0), 1 + 5 * (1 + 8 / 32.0), 1e-9);
  EXPECT_NEAR(steps(strided(0, 16, 1), 32768), 1 + 5 * (2 + 8 / 32.0), 1e-9);
  EXPECT_NEAR(steps(strided(0, 16, 1), 65536), 1 + 5 * (3 + 8 / 32.0), 1e-9);
  EXPECT_NEAR(steps(strided(0, 16, 1), 1 << 20), 1 + 5 * (3 + 8 / 32.0), 1e-9);
  EXPECT_NEAR(steps(strided(0, 512, 1), 0), 1 + 5 * (1 + 24 / 32.0) + 10 * (1 + 480 / 32.0), 1e-9);
}

/// A measured all-to-all between GPUs.
struct MeasuredExchange {
  const char* cluster;
  std::int64_t devices_per_node;
  const char* network;  ///< kind; empty: as in the preset
  std::int64_t ranks;
  double bytes, bus_gbytes_per_s;  ///< bytes over time x (n - 1) / n, as nccl-tests print it
};

// Sources: AWS p6-b300 and p5 over EFA: github:awslabs/awsome-distributed-ai@95b939cd,
// micro-benchmarks/expert-parallelism/ep-backend-comparison/RESULTS.md and RESULTS-p5.md. B300 and
// GB300 of OCI: github:oracle-quickstart/oci-gpu-quickstarts@6a0abdc. H100 in a node:
// github.com/NVIDIA/nccl/issues/2169. Two racks of GB300 are left out:
// they reach a quarter of their network.
TEST(Collective, FollowsMeasuredExchanges) {
  const MeasuredExchange measured[] = {{"hgx-b300", 8, "", 8, 8589934592, 675.55},
                                       {"gb300-nvl72", 4, "", 4, 8589934592, 624.98},
                                       {"gb300-nvl72", 64, "", 8, 8589934592, 679.65},
                                       {"gb300-nvl72", 64, "", 64, 8589934592, 649.03},
                                       {"dgx-h100-80gb", 8, "", 4, 524288000, 334.9},
                                       {"hgx-b300", 8, "", 16, 8589934592, 180.98},
                                       {"hgx-b300", 8, "efa-2024", 16, 56 << 20, 104.9},
                                       {"hgx-b300", 8, "efa-2024", 32, 56 << 20, 94.0},
                                       {"hgx-b300", 8, "efa-2024", 64, 56 << 20, 74.0},
                                       {"hgx-b300", 8, "efa-2024", 128, 56 << 20, 73.8},
                                       {"hgx-b300", 8, "efa-2024", 256, 56 << 20, 54.7},
                                       {"dgx-h100-80gb", 8, "efa-2020", 32, 64 << 20, 45.1},
                                       {"dgx-h100-80gb", 8, "efa-2020", 64, 64 << 20, 40.4}};
  double logarithms = 0;
  for (const MeasuredExchange& one : measured) {
    SCOPED_TRACE(fmt::format("{} ranks of {}, {} bytes", one.ranks, one.cluster, one.bytes));
    Cluster cluster = parse_cluster(*find_preset(cluster_presets(), one.cluster), one.cluster);
    cluster.devices_per_node = cluster.levels[0].devices = one.devices_per_node;
    if (*one.network != 0) set_network_kind(*find_network_kind(one.network), cluster);
    const double predicted = milliseconds(cluster, OpKind::all_to_all, strided(0, one.ranks, 1),
                                          Bytes(std::int64_t(one.bytes)));
    const double n = double(one.ranks);
    const double ratio = predicted / (1e3 * one.bytes * (n - 1) / n / (one.bus_gbytes_per_s * 1e9));
    EXPECT_GT(ratio, *one.network != 0 ? 0.82 : 0.9);
    EXPECT_LT(ratio, 1.12);
    logarithms += std::log(ratio);
  }
  EXPECT_NEAR(logarithms / double(std::size(measured)), 0, 0.06);
}

// 32, 64, ... 2048 MB on H100 of HyperPod over EFA, in gigabytes per second:
// github:crazyguitar/aws-gpu-communication-benchmark@a77f70db, data/nccl_alltoall.csv. Latencies
// are set on the first column. Many nodes reach less of their network with 64 to 512 MB, which is
// not modelled.
TEST(Collective, LargeExchangesTakeUpToAThirdLongerOverManyNodes) {
  const std::pair<std::int64_t, std::array<double, 7>> measured[] = {
      {16, {44.79, 62.16, 68.79, 74.26, 75.82, 77.73, 79.25}},
      {32, {34.45, 43.13, 52.56, 54.28, 53.84, 53.75, 54.07}},
      {64, {28.67, 34.69, 36.20, 44.40, 46.57, 48.31, 49.63}},
      {128, {24.63, 26.08, 31.45, 34.77, 40.07, 42.36, 44.23}},
      {256, {19.72, 22.92, 27.02, 30.21, 33.06, 38.68, 40.78}}};
  Cluster cluster = parse_cluster(*find_preset(cluster_presets(), "dgx-h100-80gb"), "H100");
  set_network_kind(*find_network_kind("efa-2020"), cluster);
  for (const auto& [ranks, bandwidths] : measured) {
    std::int64_t bytes = 32 << 20;
    for (const double bandwidth : bandwidths) {
      const double n = double(ranks);
      const double time =
          milliseconds(cluster, OpKind::all_to_all, strided(0, ranks, 1), Bytes(bytes));
      const double ratio = time / (1e-6 * double(bytes) * (n - 1) / n / bandwidth);
      EXPECT_GT(ratio, bytes == 32 << 20 ? 0.85 : 0.74) << ranks << " ranks, " << bytes;
      EXPECT_LT(ratio, 1.12) << ranks << " ranks, " << bytes;
      bytes *= 2;
    }
  }
}

// The largest bus bandwidths of the same tests of AWS, in gigabytes per second.
TEST(Collective, LargeExchangesOverManyNodesReachLessThanOverTwo) {
  const MeasuredExchange measured[] = {{"hgx-b300", 8, "efa-2024", 32, 17179869184.0, 116.9},
                                       {"hgx-b300", 8, "efa-2024", 64, 17179869184.0, 103.2},
                                       {"dgx-h100-80gb", 8, "efa-2020", 32, 17179869184.0, 53.9},
                                       {"dgx-h100-80gb", 8, "efa-2020", 64, 17179869184.0, 51.1}};
  for (const MeasuredExchange& one : measured) {
    SCOPED_TRACE(fmt::format("{} ranks of {}", one.ranks, one.cluster));
    Cluster cluster = parse_cluster(*find_preset(cluster_presets(), one.cluster), one.cluster);
    set_network_kind(*find_network_kind(one.network), cluster);
    const double n = double(one.ranks);
    const double time = milliseconds(cluster, OpKind::all_to_all, strided(0, one.ranks, 1),
                                     Bytes(std::int64_t(one.bytes)));
    EXPECT_NEAR(time / (1e-6 * one.bytes * (n - 1) / n / one.bus_gbytes_per_s), 1, 0.075);
  }
}

/// Kernels that send a token once to each rank, as they are timed without the host.
struct MeasuredDispatch {
  const char* cluster;
  std::int64_t ranks;
  double dispatch,
      combine;  ///< gigabytes per second that a rank receives, those of itself included
};

// Source: github:deepseek-ai/DeepEP@07eea0c0, Hybrid-EP_Implementation.md, "Kernel Only" with 16
// multiprocessors: 4,096 tokens of 7,168 values in 16 bits, 8 rows for each.
TEST(Collective, FollowsMeasuredKernelsThatSendATokenOnce) {
  const MeasuredDispatch measured[] = {
      {"hgx-b200", 8, 734.95, 673.84},     {"gb200-nvl72", 8, 750.15, 684.27},
      {"gb200-nvl72", 16, 661.93, 600.75}, {"gb200-nvl72", 24, 637.80, 565.53},
      {"gb200-nvl72", 32, 629.79, 547.25}, {"gb200-nvl72", 36, 612.85, 543.27}};
  const double payload = 4096.0 * 8 * 7168 * 2;
  for (const MeasuredDispatch& one : measured) {
    SCOPED_TRACE(fmt::format("{} ranks of {}", one.ranks, one.cluster));
    const Cluster cluster =
        parse_cluster(*find_preset(cluster_presets(), one.cluster), one.cluster);
    GroupSpread spread = spread_over(cluster.levels, strided(0, one.ranks, 1));
    spread.token_rows = {8, 1, 1};
    const double time =
        modelled_communication(OpKind::exchange_rows, Bytes(std::int64_t(payload)), cluster, spread)
            .time.value();
    const double n = double(one.ranks);
    const double received = payload * n / 8 * (1 - std::pow(1 - 1 / n, 8));
    const double both = received / one.dispatch + received / one.combine;
    EXPECT_NEAR(time / (both / 2 * 1e-9), 1, 0.12);
  }
}

/// The time in us that 8,192 more tokens take, 8 rows each, between 8 B200 with 16 experts each.
double more_microseconds(const char* framework, OpKind kind, std::int64_t width) {
  const Cluster cluster = parse_cluster(*find_preset(cluster_presets(), "hgx-b200"), "hgx-b200");
  const CostModel costs =
      CostModel(cluster, std::nullopt, framework_by_name(framework)).with_token_rows({8, 1, 1});
  const auto time = [&](std::int64_t tokens) {
    Tensor rows, ends;
    rows.shape = {8 * tokens, width};
    rows.dtype = DType::bf16;
    ends.shape = {8, 16};
    Op op;
    op.kind = kind;
    op.inputs = {TensorId(0), TensorId(1)};
    op.outputs = {TensorId(2)};
    return costs.communication(op, std::vector{rows, ends, rows}, costs.spread(strided(0, 8, 1)))
        .time.value();
  };
  return (time(2 * 8192) - time(8192)) * 1e6;
}

// Source: simulator/costs/expert_kernels.cpp, kCombineToken.
TEST(Collective, ATokenThatIsSentOnceTakesTimeWhateverItsWidth) {
  EXPECT_NEAR(more_microseconds("megatron-lm-flex", OpKind::exchange_rows, 512), 154, 0.35 * 154);
  EXPECT_NEAR(more_microseconds("megatron-lm-flex", OpKind::return_rows, 512), 708, 0.1 * 708);
  EXPECT_LT(more_microseconds("megatron-lm", OpKind::return_rows, 512), 300);
  EXPECT_EQ(more_microseconds("megatron-lm", OpKind::all_to_all, 512),
            more_microseconds("megatron-lm-flex", OpKind::all_to_all, 512));
}

TEST(Collective, ATransferUsesOneDevicesLink) {
  const Cluster cluster = pods();
  EXPECT_NEAR(milliseconds(cluster, OpKind::send, {0, 7}), 10 + 0.001, 1e-9);
  EXPECT_NEAR(milliseconds(cluster, OpKind::send, {0, 8}), 100 + 0.005, 1e-9);
  EXPECT_NEAR(milliseconds(cluster, OpKind::recv, {0, 32}), 200 + 0.010, 1e-9);
}

TEST(Collective, WithoutASwitchPeersLimitTheRate) {
  Cluster cluster = pods();
  cluster.levels[0].peer_bandwidth = BytesPerSecond(20e9);
  EXPECT_NEAR(milliseconds(cluster, OpKind::send, {0, 1}), 50 + 0.001, 1e-9);
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_gather, {0, 1, 2}), 2e3 / 3 / 40 + 0.002, 1e-9);
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_gather, strided(0, 8, 1)), 8.757, 1e-9);
}

TEST(Collective, AGroupMayNotUseAllLinksOfItsNode) {
  Cluster cluster = pods();
  const std::vector<std::int64_t> two_of_each = {0, 1, 8, 9}, one_of_each = {0, 8};
  const double whole = milliseconds(cluster, OpKind::all_gather, two_of_each);
  const double one = milliseconds(cluster, OpKind::all_gather, one_of_each);
  cluster.levels[1].group_bandwidth = cluster.levels[1].bandwidth;  // the links of one device
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_gather, one_of_each), one, 1e-9);
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_gather, two_of_each), 2 * whole, 0.05);
}

// 4 GB over the 64 GPUs of 16 nodes: 1.16 s (bigscience-workshop/bigscience
// experiments/bandwidth/n16_32gb_all_reduce_bench.txt).
TEST(Collective, JeanZaysVHundredTakeWhatWasMeasured) {
  const Cluster cluster = read_cluster(std::string(PLIMSOLL_SOURCE_DIR) +
                                       "/models/presets/clusters/jean-zay-v100-32gb.json");
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_reduce, strided(0, 64, 1), 4 * kGigabyte), 1160,
              60);
}

TEST(Collective, ASwitchThatReducesMovesThePayloadOnce) {
  Cluster cluster = pods();
  cluster.levels[0].reduces_in_switch = true;
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_reduce, strided(0, 8, 1)), 11.25 + 0.014, 1e-9);
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_gather, strided(0, 8, 1)), 8.757, 1e-9);
}

TEST(Collective, EfficiencyTakesItsShareAndSaysSo) {
  Cluster cluster = pods();
  cluster.efficiency.emplace();
  cluster.efficiency->levels = {{0.5, Seconds(20e-6), FitRange<Bytes>{Bytes(1000), kGigabyte, 0.1}},
                                {0.8, Seconds(30e-6), std::nullopt},
                                {1, Seconds(0), std::nullopt}};
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_gather, strided(0, 8, 1)), 17.5 + 0.027, 1e-9);
  EXPECT_NEAR(milliseconds(cluster, OpKind::send, {0, 8}), 125 + 0.035, 1e-9);
  const auto estimate = [&](Bytes payload, const Ranks& ranks) {
    return modelled_communication(OpKind::all_reduce, payload, cluster,
                                  spread_over(cluster.levels, ranks));
  };
  EXPECT_EQ(estimate(kGigabyte, {0, 1}).provenance, Provenance::interpolated);
  EXPECT_NEAR(estimate(kGigabyte, {0, 1}).spread / estimate(kGigabyte, {0, 1}).time,
              0.1 * 2 * kHalfWidth90, 1e-12);
  EXPECT_EQ(estimate(Bytes(999), {0, 1}).provenance, Provenance::extrapolated);
  EXPECT_EQ(estimate(kGigabyte, {0, 8}).provenance, Provenance::datasheet);
  cluster.efficiency->levels[1].rests_on = RestsOn::runs;
  EXPECT_EQ(estimate(kGigabyte, {0, 8}).provenance, Provenance::fitted);
  EXPECT_EQ(estimate(kGigabyte, {0, 1}).provenance, Provenance::interpolated);
  cluster.efficiency->levels[1].rests_on = RestsOn::typical;
  EXPECT_EQ(estimate(kGigabyte, {0, 8}).provenance, Provenance::typical);
}

/// Published all-reduces within one node, microseconds by payload.
struct Curve {
  const char* cluster;
  std::int64_t ranks;
  double mean_error;  ///< of the preset, no more than
  std::vector<std::pair<std::int64_t, double>> points;
};

/// V100 and A100: github.com/VIA-Research/vTrain at f8dda847, trace/v100 and trace/a100,
/// AR_GPU{2,4,8}_1M_1024M_LUT. H100: github.com/aws-samples/awsome-distributed-training at
/// 7217859f, micro-benchmarks/nccl-tests/aws-batch/README.md, p5.48xlarge. Out of place, f32.
const std::vector<Curve> kPublished = {
    {"dgx1-v100-32gb",
     2,
     0.03,
     {{1048576, 70.14},
      {4194304, 208.6},
      {16777216, 764.1},
      {67108864, 2998.9},
      {268435456, 11915.0},
      {1073741824, 47610.0}}},
    {"dgx1-v100-32gb",
     8,
     0.15,
     {{1048576, 79.93},
      {4194304, 150.9},
      {16777216, 273.8},
      {67108864, 911.3},
      {268435456, 3527.4},
      {1073741824, 13969.0}}},
    {"dgx-a100-80gb",
     2,
     0.10,
     {{1048576, 44.21},
      {4194304, 61.18},
      {16777216, 131.9},
      {67108864, 404.7},
      {268435456, 1455.8},
      {1073741824, 5442.8}}},
    {"dgx-a100-80gb",
     4,
     0.10,
     {{1048576, 51.4},
      {4194304, 77.32},
      {16777216, 179.6},
      {67108864, 543.8},
      {268435456, 1929.0},
      {1073741824, 7259.4}}},
    {"dgx-a100-80gb",
     8,
     0.15,
     {{1048576, 92.79},
      {4194304, 95.8},
      {16777216, 232.4},
      {67108864, 579.9},
      {268435456, 2162.3},
      {1073741824, 8193.0}}},
    {"dgx-h100-80gb",
     8,
     0.15,
     {{8, 12.9},
      {1024, 16.43},
      {65536, 19.09},
      {1048576, 28.56},
      {4194304, 55.44},
      {16777216, 124.0},
      {67108864, 326.6},
      {268435456, 1121.4},
      {1073741824, 4253.0},
      {17179869184, 62239.0}}},
};

TEST(Collective, PublishedAllReducesAreMet) {
  for (const Curve& curve : kPublished) {
    const Cluster cluster = read_cluster(
        fmt::format("{}/models/presets/clusters/{}.json", PLIMSOLL_SOURCE_DIR, curve.cluster));
    double sum = 0;
    for (const auto& [payload, microseconds] : curve.points) {
      const double predicted = 1e3 * milliseconds(cluster, OpKind::all_reduce,
                                                  strided(0, curve.ranks, 1), Bytes(payload));
      sum += std::abs(predicted / microseconds - 1);
    }
    EXPECT_LE(sum / double(curve.points.size()), curve.mean_error)
        << curve.ranks << " of " << curve.cluster;
  }
}

TEST(Collective, SmallPayloadsTakeTheProtocolWithShortSteps) {
  Cluster cluster = pods();
  cluster.efficiency.emplace();
  cluster.efficiency->levels.assign(3, {1, Seconds(8.4e-6), std::nullopt});
  const Ranks node = strided(0, 8, 1);
  // 14 steps of 0.6 / 3.4 us and 6.6 us instead of 8.4.
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_reduce, node, Bytes(8)), 14 * 0.6e-3 / 3.4 + 6.6e-3,
              1e-5);
  // A gigabyte goes in the plain protocol, as without any efficiency but for the fixed time.
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_reduce, node), 17.5 + 0.014 + 0.0084, 1e-9);
  // Between nodes a step of the short protocol is 2.7 of 14.
  EXPECT_NEAR(milliseconds(cluster, OpKind::all_gather, strided(0, 4, 8), Bytes(8)),
              3 * 5e-3 * 2.7 / 14 + 6.6e-3, 1e-5);
}

TEST(Collective, LinkTimeSaysWhichLevelIsSlowest) {
  const Cluster cluster = pods();
  const auto of = [&](OpKind kind, const Ranks& ranks) {
    return modelled_link_time(kind, kGigabyte, cluster, spread_over(cluster.levels, ranks));
  };
  EXPECT_EQ(of(OpKind::all_gather, strided(0, 8, 1)).level, 0u);
  EXPECT_NEAR(of(OpKind::all_gather, strided(0, 8, 1)).latency.value(), 7e-6, 1e-12);
  EXPECT_EQ(of(OpKind::all_gather, strided(0, 16, 1)).level, 1u);
  // Reduced inside first, 16 ranks on 2 nodes move more inside than between.
  EXPECT_EQ(of(OpKind::all_reduce, strided(0, 16, 1)).level, 0u);
  EXPECT_EQ(of(OpKind::send, {0, 32}).level, 2u);
  EXPECT_NEAR(of(OpKind::send, {0, 32}).latency.value(), 10e-6, 1e-12);
}

}  // namespace
}  // namespace plimsoll
