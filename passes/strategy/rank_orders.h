// Rank orders: which ways to number the ranks of given degrees make their groups lie differently.
#pragma once

#include <cstdint>
#include <vector>

#include "models/cluster/cluster.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// Where it matters which ranks are neighbours: units of so many consecutive devices that share a
/// node, or a level of the cluster's links. None: every device is as near as any other.
struct DeviceUnits {
  std::vector<std::int64_t> sizes;
  bool alike = true;  ///< nodes have devices of one kind
};
DeviceUnits units_of(const Cluster& cluster);

/// Whether every unit holds the same ranks of every group in both orders, up to which unit that is.
/// Where a unit's border cuts an axis into unequal parts they count as different.
bool lie_alike(const Strategy& strategy, RankOrder a, RankOrder b, const DeviceUnits& units);

struct RankOrders {
  std::vector<RankOrder> tried;  ///< at least one
  std::int64_t alike = 0;        ///< left out: they number otherwise, but lie as one of `tried`
};
/// The orders of a framework for the degrees of a strategy. The default stands for those that
/// number ranks as it does.
RankOrders rank_orders(const Framework& framework, const Strategy& strategy,
                       const DeviceUnits& units);

}  // namespace plimsoll
