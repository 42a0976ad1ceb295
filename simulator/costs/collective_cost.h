// Time of collectives and transfers over the levels of a cluster.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "graph/op.h"
#include "models/cluster/cluster.h"
#include "simulator/costs/estimate.h"

namespace plimsoll {

/// How the ranks of a communication lie in the cluster; all that its cost depends on beside the op.
struct GroupSpread {
  std::int64_t ranks = 1;
  /// Innermost level of the cluster with one unit that holds them all (index into levels).
  std::size_t level = 0;
  /// For each level inside that one: how many of its units hold some of the ranks, and the fewest
  /// ranks in any of these. Beyond: 0.
  std::array<std::int64_t, kMostLevels> units{}, fewest{};
  /// Nodes that hold some of the ranks, and how many groups like this one communicate at once on
  /// one of them, this one included (CollectivePoint::groups_per_node).
  std::int64_t nodes = 1, at_once = 1;
  auto operator<=>(const GroupSpread&) const = default;
};

/// `ranks` ascend; device = rank, and units hold consecutive devices.
GroupSpread spread_over(std::span<const Level> levels, std::span<const std::int64_t> ranks);

/// The fastest of two algorithms and three protocols, as NCCL chooses (src/graph/tuning.cc), each
/// with the time of its bytes over the slowest level plus the latency of its steps; pieces are
/// pipelined, so levels work at once. Protocols with short steps and less bandwidth are considered
/// where the cluster has efficiency parameters: without them levels are taken as stated.
///
/// Ring: each rank sends S (n-1)/n bytes per round (two rounds for an all-reduce; S to or from one
/// root, where the ring is a chain), and so does each unit, over the links of its own ranks of the
/// group. Per round n - 1 steps, of which as many cross a level as it joins units, less one. Tree,
/// all-reduce only: what crosses a level was reduced inside first, so that a level joining g units
/// carries S (g-1)/g per round and unit.
/// Steps per round: g - 1 in the innermost level, log2 g beyond. A level that reduces in its switch
/// carries S (1 + 1/g) for both rounds together.
///
/// A ring shift is a transfer at the group's slowest hop. In an all-to-all each rank sends 1/n of S
/// to each of the others over its own links, at once at all levels.
///
/// `payload` is the full buffer on one rank.
Estimate modelled_communication(OpKind kind, Bytes payload, const Cluster& cluster,
                                const GroupSpread& spread);

/// The time beside its bytes, and the level on which the bytes are slowest.
struct LinkTime {
  Seconds latency;
  std::size_t level = 0;
};
LinkTime modelled_link_time(OpKind kind, Bytes payload, const Cluster& cluster,
                            const GroupSpread& spread);

}  // namespace plimsoll
