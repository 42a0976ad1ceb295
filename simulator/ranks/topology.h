// Topology: with whom each rank of the grid communicates, at what cost and over which links.
#pragma once

#include <span>
#include <vector>

#include "simulator/costs/cost_model.h"
#include "simulator/ranks/expand.h"

namespace plimsoll {

/// A channel of one rank.
struct RankChannel {
  bool grouped = false;        ///< collectives of a group, else transfers
  std::uint32_t instance = 0;  ///< of a group: index into RankTopology::instances
  std::int64_t peer = 0;       ///< of transfers
  std::uint32_t cost = 0;      ///< index into RankTopology::costs
};

struct GroupInstance {
  Group group;
  std::vector<std::int64_t> members;  ///< ascending
  GroupSpread spread;
};

/// All ranks of the grid with their channels.
struct RankTopology {
  /// By rank: the Expansion for its Program and the kind of its device.
  std::vector<std::size_t> expansion;
  std::vector<std::vector<RankChannel>> channels;  ///< [rank][channel of its Expansion]
  std::vector<GroupInstance> instances;
  /// [cost][position]: the costs of the ops of one channel, in the order of Expansion::channel_ops.
  /// Channels with equal costs have one entry.
  std::vector<std::vector<Estimate>> costs;
  /// The links that these ops pass (Execution::streams only). A rank shares only its own links, so
  /// the entry does not say with whom they are shared.
  std::vector<std::vector<LinkUse>> link_uses;
  /// How these ops and the kernels beside them slow each other (Execution::streams only).
  std::vector<std::vector<OverlapCurves::Slowdowns>> slowdowns;
  /// How these ops and local ops slow each other (Execution::processes only).
  std::vector<std::vector<MutualSlowdown>> mutual_slowdowns;
};

/// Resolves the channels of every rank. `expansions` are those of all Programs of a job (expand).
RankTopology resolve_channels(std::span<const Expansion> expansions, const CostModel& costs);

}  // namespace plimsoll
