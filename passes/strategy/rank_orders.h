// Rank orders are the ways of numbering the ranks of given degrees; only those that place groups
// differently are worth trying.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "models/cluster/cluster.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// DeviceUnits say where it matters which ranks are neighbours. A unit is so many consecutive
/// devices that share a node or a level of the cluster's links. With no units, all devices are
/// equally near.
struct DeviceUnits {
  std::vector<std::int64_t> sizes;
  bool alike = true;  ///< whether all nodes have devices of one kind
  /// The rate of the products of the device that a rank runs on; absent if all are alike or
  /// unknown.
  std::function<double(std::int64_t rank)> rate = {};
};
DeviceUnits units_of(const Cluster& cluster);

/// Returns whether every unit holds the same ranks of every group in both orders, except for the
/// order of the units. Where the border of a unit cuts an axis into unequal parts, the orders count
/// as different.
bool group_alike(const Strategy& strategy, RankOrder a, RankOrder b, const DeviceUnits& units);

struct RankOrders {
  std::vector<RankOrder> tried;  ///< at least one, unless none is allowed
  /// orders left out: they number ranks differently, but place groups as one of `tried` does
  std::int64_t alike = 0;
};
/// Returns the orders of a framework for the degrees of a strategy. The default order stands for
/// all orders that number ranks in the same way. Orders that `allowed` refuses do not count, and
/// there may be none at all then.
RankOrders rank_orders(const Framework& framework, const Strategy& strategy,
                       const DeviceUnits& units,
                       const std::function<bool(RankOrder)>& allowed = {});

}  // namespace plimsoll
