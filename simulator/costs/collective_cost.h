// Collective cost: the time of collectives and transfers over the levels of a cluster.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "graph/op.h"
#include "models/cluster/cluster.h"
#include "simulator/costs/estimate.h"

namespace plimsoll {

/// How the rows of a token travel to its experts, if a token travels once to each node and rank.
struct TokenRows {
  std::int64_t count = 1;  ///< rows of a token, one for each of its experts
  /// Experts are in groups of neighbours, and a token has experts of some of these groups only
  /// (Experts::groups, Experts::top_groups).
  std::int64_t groups = 1, top_groups = 1;
  auto operator<=>(const TokenRows&) const = default;
};

/// How the ranks of a communication lie in the cluster. Its cost depends on this and on the op
/// only.
struct GroupSpread {
  std::int64_t ranks = 1;
  /// The innermost level with a unit that holds all the ranks (index into levels).
  std::size_t level = 0;
  /// For each level inside that one: how many of its units hold some of the ranks, and the fewest
  /// ranks in any of these units. For other levels 0.
  std::array<std::int64_t, kMostLevels> units{}, fewest{};
  /// Nodes that hold some of the ranks, and the groups like this one (itself included) that
  /// communicate on one of these nodes at once (CollectivePoint::groups_per_node).
  std::int64_t nodes = 1, at_once = 1;
  TokenRows token_rows = {};  ///< of an exchange of experts' rows
  auto operator<=>(const GroupSpread&) const = default;
};

/// Returns how the ranks of a communication lie on the levels of a cluster. `ranks` ascend. Rank r
/// runs on device r, and units hold consecutive devices.
GroupSpread spread_over(std::span<const Level> levels, std::span<const std::int64_t> ranks);

/// Returns the time of the fastest of two algorithms and three protocols, as NCCL chooses
/// (src/graph/tuning.cc). A time is that of the bytes over the slowest level, plus the latency of
/// the steps. Chunks are pipelined, so all levels work at once. Protocols with short steps and less
/// bandwidth are considered only where the cluster has efficiency parameters.
///
/// A group sends at most the level's group_bandwidth out of a unit.
///
/// S is `payload`, the full buffer on one rank, and n the number of ranks.
///  - Ring: each rank sends S (n-1)/n bytes per round; an all-reduce has two rounds. To or from one
///    root the ring is a chain, and each rank sends S. Each unit sends as much, over the links of
///    its ranks in the group. A round has n - 1 steps; a level that joins g units is crossed in
///    g - 1 of them.
///  - Tree, for all-reduce only: data is reduced inside a unit before it crosses a level. A level
///    that joins g units carries S (g-1)/g per round and unit. A round has g - 1 steps in the
///    innermost level, and log2 g in others. A level that reduces in its switch carries S (1 + 1/g)
///    for both rounds together.
///  - A ring shift is a transfer over the group's slowest hop. In an all-to-all each rank sends S/n
///    to each other rank over its own links, at all levels at once. If k rows of a token travel as
///    one to each of N nodes, 1 - (1 - 1/N)^k of N/k of the rows cross between nodes: as many
///    nodes have one or more of k rows, if each row is at any node. If the token's experts are in
///    g of G groups, these are the nodes with one of the g groups.
Estimate modelled_communication(OpKind kind, Bytes payload, const Cluster& cluster,
                                const GroupSpread& spread);

/// A communication's latency, and the level on which its bytes are slowest.
struct LinkTime {
  Seconds latency;
  std::size_t level = 0;
};
LinkTime modelled_link_time(OpKind kind, Bytes payload, const Cluster& cluster,
                            const GroupSpread& spread);

}  // namespace plimsoll
