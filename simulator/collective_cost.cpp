#include "simulator/collective_cost.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "simulator/efficiency_curves.h"

namespace plimsoll {
namespace {

/// One level that a group's data crosses.
struct Crossing {
  const Level* level;
  BytesPerSecond bandwidth;  ///< out of one of the units it joins, at what is reached of it
  double units;              ///< joined, over all of the group
  double joined;             ///< by each of this level's units, on average
};

/// Bytes out of the busiest unit relative to the payload, over the slowest level, and the latency.
struct Cost {
  Seconds bytes, steps;
  Seconds total() const { return bytes + steps; }
};

double rounds(OpKind kind) { return kind == OpKind::all_reduce ? 2 : 1; }

/// Bytes that the busiest of n ranks sends in a ring, relative to the payload. To or from one root
/// all of it passes every rank, in a chain (nccl-tests, doc/PERFORMANCE.md, "Broadcast", "Reduce").
double sent(OpKind kind, double n) {
  if (kind == OpKind::reduce || kind == OpKind::broadcast) return 1;
  return rounds(kind) * (n - 1) / n;
}

/// What is reached of a level's bandwidth by one device to `peers` others.
BytesPerSecond reached(const Cluster& cluster, std::size_t l, double peers) {
  const Level& level = cluster.levels[l];
  double rate = level.bandwidth.value();
  if (level.peer_bandwidth) rate = std::min(rate, level.peer_bandwidth->value() * peers);
  if (cluster.efficiency) rate *= cluster.efficiency->levels[l].bandwidth_fraction;
  return BytesPerSecond(rate);
}

/// The levels that join something, inner to outer.
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
    const BytesPerSecond rate = reached(cluster, l, std::max(1.0, joined - 1));
    result.at[result.count++] = {&cluster.levels[l], BytesPerSecond(rate.value() * double(senders)),
                                 double(inner - outer + 1), joined};
  }
  return result;
}

Cost ring(OpKind kind, Bytes payload, std::int64_t ranks, const Crossings& crossings) {
  const double n = double(ranks);
  Cost cost;
  for (std::size_t i = 0; i < crossings.count; ++i) {
    const Crossing& crossing = crossings.at[i];
    const Seconds time = payload / crossing.bandwidth * sent(kind, n);
    cost.bytes = std::max(cost.bytes, time);
    cost.steps += crossing.level->latency * (rounds(kind) * (crossing.units - 1));
  }
  return cost;
}

Cost tree(Bytes payload, const Crossings& crossings) {
  Cost cost;
  for (std::size_t i = 0; i < crossings.count; ++i) {
    const Crossing& crossing = crossings.at[i];
    const double g = crossing.joined;
    const double moved = crossing.level->reduces_in_switch ? 1 + 1 / g : 2 * (g - 1) / g;
    cost.bytes = std::max(cost.bytes, payload / crossing.bandwidth * moved);
    cost.steps += crossing.level->latency * (2 * (i == 0 ? g - 1 : std::log2(g)));
  }
  return cost;
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

Estimate modelled_communication(OpKind kind, Bytes payload, const Cluster& cluster,
                                const GroupSpread& spread) {
  if (cluster.levels.empty()) {  // devices that share memory: what crosses is copied through it
    const double n = double(spread.ranks);
    const bool transfer = kind == OpKind::send || kind == OpKind::recv;
    const double moved = transfer ? 1 : rounds(kind) * (n - 1) / n;
    return {payload / cluster.device.memory_bandwidth * moved, Seconds(0), Provenance::datasheet};
  }
  Seconds time;
  const Level& outermost = cluster.levels[spread.level];
  if (kind == OpKind::send || kind == OpKind::recv) {
    time = payload / reached(cluster, spread.level, 1) + outermost.latency;
  } else {
    const Crossings levels = crossings(cluster, spread);
    time = ring(kind, payload, spread.ranks, levels).total();
    if (kind == OpKind::all_reduce) time = std::min(time, tree(payload, levels).total());
  }
  if (!cluster.efficiency) return {time, Seconds(0), Provenance::datasheet};
  const LevelEfficiency& efficiency = cluster.efficiency->levels[spread.level];
  return fitted_estimate(time + efficiency.fixed_time, payload, efficiency.fitted);
}

}  // namespace plimsoll
