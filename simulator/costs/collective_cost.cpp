// Algorithms and protocols of collectives, level by level.
#include "simulator/costs/collective_cost.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "simulator/costs/efficiency_curves.h"

namespace plimsoll {
namespace {

/// A protocol of NCCL, relative to the simple one. LL sends a flag with every 4 bytes, and LL128
/// with every 120, so that the receiver need not be told. Steps are shorter, and bandwidth is lost.
/// Constants of NCCL 2.18, src/graph/tuning.cc: hwLat of rings over NVLink and network, baseLat,
/// the shares of the bandwidth in ncclTopoTuneModel, llMaxBws.
struct Protocol {
  double bandwidth;        ///< of what is reached
  double most_in_node;     ///< of what is stated: 39 of 150, 87.7 of 300, 141 of 450 GB/s
  double most_in_network;  ///< 20 of 200 GB/s
  double step_in_node, step_in_network;  ///< latency
  double fixed_time;
  bool switch_reduces;  ///< where there is one that can
};
constexpr std::array<Protocol, 3> kProtocols = {
    {{1, 1, 1, 1, 1, 1, true},                                   // Simple
     {0.92, 1, 1, 1.9 / 3.4, 4.0 / 14, 14 / 8.4, false},         // LL128
     {0.5, 0.29, 0.1, 0.6 / 3.4, 2.7 / 14, 6.6 / 8.4, false}}};  // LL

/// Returns the protocols to choose from. Only the simple one is considered where nothing says how
/// far a library stays below its links' rates.
std::span<const Protocol> protocols(const Cluster& cluster) {
  const bool of_library = cluster.efficiency && cluster.device.kind == DeviceKind::gpu;
  return std::span(kProtocols).first(of_library ? kProtocols.size() : 1);
}

/// One level that a group's data crosses.
struct Crossing {
  const Level* level;
  std::size_t number;  ///< of the level in the cluster
  bool in_node;
  BytesPerSecond stated, bandwidth;  ///< out of one of the units it joins: as is, and as reached
  double units;                      ///< joined, over all of the group
  double joined;                     ///< by each of this level's units, on average
};

/// The time of an algorithm: its bytes over the slowest level, and the latency of its steps.
struct Cost {
  Seconds bytes, steps;
  std::size_t level = 0;  ///< the slowest
  Seconds total() const { return bytes + steps; }
  void add(Seconds time, const Crossing& crossing);
};

void Cost::add(Seconds time, const Crossing& crossing) {
  if (time > bytes) level = crossing.number;
  bytes = std::max(bytes, time);
}

double rounds(OpKind kind) { return kind == OpKind::all_reduce ? 2 : 1; }

/// Returns the bytes that the busiest of n ranks sends in a ring, relative to the payload. To or
/// from one root the whole payload passes every rank, in a chain (nccl-tests, doc/PERFORMANCE.md,
/// "Broadcast", "Reduce").
double sent(OpKind kind, double n) {
  if (kind == OpKind::reduce || kind == OpKind::broadcast) return 1;
  return rounds(kind) * (n - 1) / n;
}

/// Returns the bandwidth of a level between one device and `peers` others.
BytesPerSecond reached(const Cluster& cluster, std::size_t l, double peers) {
  const Level& level = cluster.levels[l];
  double rate = level.bandwidth.value();
  if (level.peer_bandwidth) rate = std::min(rate, level.peer_bandwidth->value() * peers);
  if (cluster.efficiency) rate *= cluster.efficiency->levels[l].bandwidth_fraction;
  return BytesPerSecond(rate);
}

/// Whether a unit of the level is in one node.
bool is_in_node(const Level& level, const Cluster& cluster) {
  return 0 < level.devices && level.devices <= cluster.devices_per_node;
}

/// Returns the levels that join several units, from inner to outer.
struct Crossings {
  std::array<Crossing, kMostLevels> at;
  std::size_t count = 0;
};

Crossings crossings(const Cluster& cluster, const GroupSpread& spread) {
  Crossings result;
  for (std::size_t l = 0; l <= spread.level; ++l) {
    const std::int64_t inner = l == 0 ? spread.ranks : spread.units[l - 1];
    const std::int64_t outer = l == spread.level ? 1 : spread.units[l];
    if (inner == outer) continue;  // each unit of this level holds one: nothing to join
    const std::int64_t senders = l == 0 ? 1 : spread.fewest[l - 1];
    const double joined = double(inner) / double(outer);
    const Level& level = cluster.levels[l];
    const BytesPerSecond of_one = reached(cluster, l, std::max(1.0, joined - 1));
    BytesPerSecond rate(of_one.value() * double(senders));
    if (level.group_bandwidth) rate = std::min(rate, *level.group_bandwidth);
    result.at[result.count++] = {&level,
                                 l,
                                 is_in_node(level, cluster),
                                 BytesPerSecond(level.bandwidth.value() * double(senders)),
                                 rate,
                                 double(inner - outer + 1),
                                 joined};
  }
  return result;
}

BytesPerSecond rate(const Crossing& crossing, const Protocol& protocol) {
  const double most = crossing.in_node ? protocol.most_in_node : protocol.most_in_network;
  return std::min(BytesPerSecond(crossing.bandwidth.value() * protocol.bandwidth),
                  BytesPerSecond(crossing.stated.value() * most));
}

Seconds step(const Crossing& crossing, const Protocol& protocol) {
  const double part = crossing.in_node ? protocol.step_in_node : protocol.step_in_network;
  return crossing.level->latency * part;
}

Cost ring(OpKind kind, Bytes payload, std::int64_t ranks, const Crossings& crossings,
          const Protocol& protocol) {
  const double n = double(ranks);
  Cost cost;
  for (std::size_t i = 0; i < crossings.count; ++i) {
    const Crossing& crossing = crossings.at[i];
    const Seconds time = payload / rate(crossing, protocol) * sent(kind, n);
    cost.add(time, crossing);
    cost.steps += step(crossing, protocol) * (rounds(kind) * (crossing.units - 1));
  }
  return cost;
}

Cost tree(Bytes payload, const Crossings& crossings, const Protocol& protocol) {
  Cost cost;
  for (std::size_t i = 0; i < crossings.count; ++i) {
    const Crossing& crossing = crossings.at[i];
    const double g = crossing.joined;
    const double moved =
        crossing.level->reduces_in_switch && protocol.switch_reduces ? 1 + 1 / g : 2 * (g - 1) / g;
    cost.add(payload / rate(crossing, protocol) * moved, crossing);
    cost.steps += step(crossing, protocol) * (2 * (i == 0 ? g - 1 : std::log2(g)));
  }
  return cost;
}

/// Returns the number of units that have one or more of a token's rows, relative to the rows.
double crossing_share(double units, const TokenRows& token) {
  const auto rows = double(token.count), groups = double(token.groups);
  if (token.groups > token.top_groups && units < groups) {  // a unit has several groups
    double none = 1;  // the chance that a unit has none of the token's groups
    for (std::int64_t i = 0; i < token.top_groups; ++i)
      none *= std::max(0.0, groups - groups / units - double(i)) / (groups - double(i));
    return units * (1 - none) / rows;
  }
  const double reach = units * double(token.top_groups) / groups;
  return reach / rows * (1 - std::pow(1 - 1 / reach, rows));
}

/// The bandwidth that an all-to-all between GPUs reaches, relative to a ring's, and at most as a
/// share of what is stated, inside of a unit, between two and between more. Nothing is reduced, and
/// no rank waits for the one before it. 8 B300 reach 676, 4 to 64 GB300 of a rack 625 to 680 of 900
/// GB/s, and 16 B300 of two nodes 96.5 of 100
/// (github:oracle-quickstart/oci-gpu-quickstarts@6a0abdc, README-B300.md and README-GB300.md); 4
/// H100 reach 335 of 450 GB/s (github.com/NVIDIA/nccl/issues/2169). Rings reach 0.63 in a node. Of
/// their networks, 16, 32 and 64 B300 reach 0.96, 0.91 and 0.92, and 32 and 64 H100 0.83 and 0.91
/// (github:awslabs/awsome-distributed-ai@95b939cd, micro-benchmarks/expert-parallelism,
/// ep-backend-comparison/RESULTS.md and RESULTS-p5.md, alltoall_perf: largest bus bandwidths).
constexpr double kExchangeOverRing = 0.75 / 0.63;
constexpr double kMostInside = 0.75, kMostOfExchange = 0.96, kMostOfMany = 0.89;

/// The share that kernels reach which send a token once to each rank. HybridEP's reach 0.73 to 0.66
/// of 900 GB/s (dispatch) and 0.67 to 0.58 (combine) on 8 to 36 GB200, and 0.71 and 0.66 on 8 B200
/// (github:deepseek-ai/DeepEP@07eea0c0, Hybrid-EP_Implementation.md, "Kernel Only", 16-bit, without
/// a rank's tokens for itself); DeepEP's reach 0.66 of 450 on 8 H20 (its issue 16).
constexpr double kOnceInside = 0.65;

/// Returns the bandwidth of a level for an all-to-all between one device and `peers` others, whose
/// ranks are in `units` units of the level inside. `once`: a token is sent once to each rank.
BytesPerSecond exchanged(const Cluster& cluster, std::size_t l, double peers, double units,
                         bool once) {
  const BytesPerSecond ring = reached(cluster, l, peers);
  if (!cluster.efficiency || cluster.device.kind != DeviceKind::gpu) return ring;
  const double share = cluster.efficiency->levels[l].bandwidth_fraction;
  const bool inside = is_in_node(cluster.levels[l], cluster);
  if (inside && once) return ring * std::min(kExchangeOverRing, kOnceInside / share);
  const double most = inside ? kMostInside : units > 2 ? kMostOfMany : kMostOfExchange;
  return ring * std::max(1.0, std::min(kExchangeOverRing, most / share));
}

/// The latencies of a network that an all-to-all of NCCL takes: one for small messages, two more as
/// they grow to 64 KiB for a peer, and one for each 32 peers, which share a device's NICs. The
/// first two follow 16 H100 over EFA, which take 107 us at 4 KiB for each peer, 213 at 32 and 303
/// at 64 (github.com/bottlerocket-os/bottlerocket-kernel-kit/pull/313). The last follows 32 MB on
/// 16 to 256 H100 over EFA (github:crazyguitar/aws-gpu-communication-benchmark@a77f70db,
/// data/nccl_alltoall.csv).
constexpr Bytes kLargeMessage{65536};
constexpr double kLatenciesOfLarge = 2, kPeersOfLatency = 32;

/// Returns the steps in which an all-to-all reaches this many peers of a level. Between GPUs in a
/// node, and in kernels that send a token once, it is one. Cores send to one peer after the other
/// (pairwise exchange: Thakur, Rabenseifner, Gropp, IJHPCA 2005, section 5).
double steps_to(double peers, Bytes for_each, bool once, const Level& level,
                const Cluster& cluster) {
  if (cluster.device.kind != DeviceKind::gpu) return peers;
  if (once || is_in_node(level, cluster)) return 1;
  const double share = double(for_each.count()) / double(kLargeMessage.count());
  return 1 + kLatenciesOfLarge * std::min(1.0, share) + peers / kPeersOfLatency;
}

/// An all-to-all: each rank sends 1/n of the payload to every other rank over its own links. Data
/// for ranks outside a unit leaves the unit.
Cost exchange(Bytes payload, const Cluster& cluster, const GroupSpread& spread, Seconds fixed) {
  const double n = double(spread.ranks);
  Cost cost;
  cost.steps = fixed;
  for (std::size_t l = 0; l <= spread.level; ++l) {
    const double inside = l == 0 ? 1 : double(spread.fewest[l - 1]);
    if (inside >= n) continue;
    const bool once = spread.token_rows.count > 1;
    const Seconds time = payload / exchanged(cluster, l, n - inside, n / inside, once) *
                         ((n - inside) / n) * crossing_share(n / inside, spread.token_rows);
    if (time > cost.bytes) cost.level = l;
    cost.bytes = std::max(cost.bytes, time);
    const double reach = l == spread.level ? n : double(spread.fewest[l]);
    const Bytes for_each(payload.count() / spread.ranks);
    cost.steps += cluster.levels[l].latency *
                  steps_to(reach - inside, for_each, once, cluster.levels[l], cluster);
  }
  return cost;
}

/// Returns the time of the fastest algorithm and protocol. `fixed` is added to every collective.
Cost collective(OpKind kind, Bytes payload, const Cluster& cluster, const GroupSpread& spread,
                Seconds fixed) {
  const Crossings levels = crossings(cluster, spread);
  std::optional<Cost> best;
  const auto consider = [&](Cost cost, const Protocol& protocol) {
    cost.steps += fixed * protocol.fixed_time;
    if (!best || cost.total() < best->total()) best = cost;
  };
  for (const Protocol& protocol : protocols(cluster)) {
    consider(ring(kind, payload, spread.ranks, levels, protocol), protocol);
    if (kind == OpKind::all_reduce) consider(tree(payload, levels, protocol), protocol);
  }
  return *best;
}

}  // namespace

GroupSpread spread_over(std::span<const Level> levels, std::span<const std::int64_t> ranks) {
  GroupSpread spread;
  spread.ranks = std::int64_t(ranks.size());
  for (; spread.level + 1 < levels.size(); ++spread.level) {
    const std::int64_t unit = levels[spread.level].devices;
    if (unit <= 0 || ranks.front() / unit == ranks.back() / unit) break;
    std::int64_t units = 0, fewest = spread.ranks;
    for (std::size_t first = 0, next = 0; first < ranks.size(); first = next) {
      while (next < ranks.size() && ranks[next] / unit == ranks[first] / unit) ++next;
      ++units;
      fewest = std::min(fewest, std::int64_t(next - first));
    }
    spread.units[spread.level] = units;
    spread.fewest[spread.level] = fewest;
  }
  return spread;
}

namespace {

/// Returns the cost on a cluster with levels.
Cost cost_over_levels(OpKind kind, Bytes payload, const Cluster& cluster,
                      const GroupSpread& spread) {
  const Seconds fixed =
      cluster.efficiency ? cluster.efficiency->levels[spread.level].fixed_time : Seconds(0);
  const bool exchanges =
      kind == OpKind::all_to_all || kind == OpKind::exchange_rows || kind == OpKind::return_rows;
  if (exchanges) return exchange(payload, cluster, spread, fixed);
  if (kind == OpKind::send || kind == OpKind::recv || kind == OpKind::ring_shift) {
    return {payload / reached(cluster, spread.level, 1),
            cluster.levels[spread.level].latency + fixed, spread.level};
  }
  return collective(kind, payload, cluster, spread, fixed);
}

}  // namespace

Estimate modelled_communication(OpKind kind, Bytes payload, const Cluster& cluster,
                                const GroupSpread& spread) {
  if (cluster.levels.empty()) {  // devices that share memory: what crosses is copied through it
    const double n = double(spread.ranks);
    const bool transfer =
        kind == OpKind::send || kind == OpKind::recv || kind == OpKind::ring_shift;
    const double moved = transfer ? 1 : rounds(kind) * (n - 1) / n;
    return {payload / cluster.device.memory_bandwidth * moved, Seconds(0), Provenance::datasheet};
  }
  const Seconds time = cost_over_levels(kind, payload, cluster, spread).total();
  if (!cluster.efficiency) return {time, Seconds(0), Provenance::datasheet};
  return fitted_estimate(time, payload, cluster.efficiency->levels[spread.level]);
}

LinkTime modelled_link_time(OpKind kind, Bytes payload, const Cluster& cluster,
                            const GroupSpread& spread) {
  const Cost cost = cost_over_levels(kind, payload, cluster, spread);
  return {cost.steps, cost.level};
}

}  // namespace plimsoll
