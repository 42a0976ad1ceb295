// Who communicates with whom, and which ranks behave alike and need simulating only once.
#pragma once

#include <span>
#include <vector>

#include "simulator/costs/cost_model.h"
#include "simulator/ranks/expand.h"

namespace plimsoll {

/// The communication of one rank over one link of its Program.
struct RankLink {
  bool grouped = false;        ///< over a group, else a transfer
  std::uint32_t instance = 0;  ///< of a group: index into LinkTopology::instances
  std::int64_t peer = 0;       ///< of a transfer
  std::uint32_t cost = 0;      ///< index into LinkTopology::costs
};

struct GroupInstance {
  Group group;
  std::vector<std::int64_t> members;  ///< ascending
  GroupSpread spread;
};

/// The real grid of ranks with every link resolved.
struct LinkTopology {
  /// By rank: the Program that it runs and the kind of its device, as an Expansion of both.
  std::vector<std::size_t> expansion;
  std::vector<std::vector<RankLink>> links;  ///< [rank][link of its Program]
  std::vector<GroupInstance> instances;
  /// The costs of the ops of one link, in order of Expansion::link_ops; equal costs are one entry.
  std::vector<std::vector<Estimate>> costs;
  /// The links that these ops pass; empty but for Execution::streams. Ranks share only their own
  /// links, so they need not be told apart by whom they share with.
  std::vector<std::vector<LinkUse>> link_uses;
  /// How these ops and kernels beside them slow each other; empty but for Execution::streams.
  std::vector<std::vector<OverlapCurves::Slowdowns>> slowdowns;
  /// How these ops and local ops slow each other; empty but for Execution::processes.
  std::vector<std::vector<Beside>> besides;
};

/// `expansions` are of all Programs of a job (expand).
LinkTopology resolve_links(std::span<const Expansion> expansions, const CostModel& costs);

/// Class of each rank, numbered by lowest rank: the coarsest partition in which ranks of one class
/// run the same Program on devices of one kind, over links that cost the same, with groups and
/// peers of the same classes.
std::vector<std::uint32_t> behaviour_classes(const LinkTopology& topology);

/// The classes that meet in a group, ascending.
std::vector<std::uint32_t> classes_in(const GroupInstance& instance,
                                      std::span<const std::uint32_t> classes);

}  // namespace plimsoll
