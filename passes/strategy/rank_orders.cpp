// Orders are compared by how much of each axis a unit of devices holds.
#include "passes/strategy/rank_orders.h"

#include <algorithm>
#include <optional>

namespace plimsoll {
namespace {

using Extents = std::array<std::int64_t, kAxes>;  ///< by Axis

/// How many steps along each axis one unit holds; nothing where units cut an axis unequally.
std::optional<Extents> held_by(const Grid& grid, std::int64_t size) {
  Extents held;
  held.fill(1);
  std::int64_t inner = 1;
  for (const Axis axis : grid.order) {
    const std::int64_t degree = grid[axis], next = inner * degree;
    if (size % next != 0 && size < grid.world_size()) {
      if (size % inner != 0 || next % size != 0) return std::nullopt;
      held[std::size_t(axis)] = size / inner;
      return held;
    }
    held[std::size_t(axis)] = degree;
    inner = next;
  }
  return held;
}

Grid in_order(const Strategy& strategy, RankOrder order) {
  Grid grid = grid_of(strategy);
  grid.order = axes_of(order);
  return grid;
}

}  // namespace

DeviceUnits units_of(const Cluster& cluster) {
  DeviceUnits units;
  if (cluster.nodes != 1) units.sizes.push_back(cluster.devices_per_node);
  for (std::size_t l = 0; l + 1 < cluster.levels.size(); ++l) {
    if (cluster.levels[l].devices > 0) units.sizes.push_back(cluster.levels[l].devices);
  }
  units.alike = cluster.other_devices.empty();
  if (!units.alike) {
    units.rate = [cluster](std::int64_t rank) {
      const std::size_t kind = device_kind(cluster, rank);
      const std::optional<Efficiency>& reached =
          kind == 0 ? cluster.efficiency : cluster.other_devices[kind - 1].efficiency;
      const Device& device = device_of(cluster, kind);
      const auto peak = device.peak_bf16   ? device.peak_bf16
                        : device.peak_fp16 ? device.peak_fp16
                                           : device.peak_fp32;
      return (peak ? peak->value() : 1) * (reached ? reached->matmul.peak_fraction : 1);
    };
  }
  return units;
}

bool group_alike(const Strategy& strategy, RankOrder a, RankOrder b, const DeviceUnits& units) {
  if (same_ranks(strategy, a, b)) return true;
  const Grid one = in_order(strategy, a), other = in_order(strategy, b);
  return units.alike && std::all_of(units.sizes.begin(), units.sizes.end(), [&](std::int64_t size) {
           const std::optional<Extents> held = held_by(one, size);
           return held && held == held_by(other, size);
         });
}

RankOrders rank_orders(const Framework& framework, const Strategy& strategy,
                       const DeviceUnits& units, const std::function<bool(RankOrder)>& allowed) {
  const auto may = [&](RankOrder order) { return !allowed || allowed(order); };
  RankOrders found;
  const auto& has = framework.can.ranks.orders.value;
  const RankOrder usual = Strategy().rank_order;
  std::vector<RankOrder> possible;
  for (std::size_t i = 0; i < std::size(kRankOrders); ++i) {
    if (has.has(RankOrder(i)) && may(RankOrder(i))) possible.push_back(RankOrder(i));
  }
  const auto as_usual = std::find_if(possible.begin(), possible.end(), [&](RankOrder order) {
    return same_ranks(strategy, order, usual);
  });
  if (as_usual != possible.end() && may(usual)) possible.insert(possible.begin(), usual);
  std::vector<RankOrder> numbered;
  for (const RankOrder order : possible) {
    const auto has_one = [](const std::vector<RankOrder>& orders, auto&& alike) {
      return std::any_of(orders.begin(), orders.end(), alike);
    };
    if (has_one(numbered, [&](RankOrder one) { return same_ranks(strategy, one, order); }))
      continue;
    numbered.push_back(order);
    const bool lies_alike = has_one(
        found.tried, [&](RankOrder one) { return group_alike(strategy, one, order, units); });
    if (lies_alike) {
      ++found.alike;
    } else {
      found.tried.push_back(order);
    }
  }
  if (found.tried.empty() && may(usual)) found.tried.push_back(usual);  // for legal() to refuse
  return found;
}

}  // namespace plimsoll
