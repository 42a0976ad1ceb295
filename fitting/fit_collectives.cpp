// Single communications are fitted here.
#include "fitting/fit_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "fitting/fit_ops.h"
#include "simulator/costs/collective_cost.h"

namespace plimsoll {
namespace {

constexpr Bytes kSmallest{1 << 20};
constexpr std::size_t kFewestPoints = 10;  // a fit of fewer says nothing of its errors

std::vector<CollectiveMeasurement> usable(std::span<const CollectiveMeasurement> points,
                                          const Cluster& cluster) {
  std::vector<CollectiveMeasurement> result;
  for (const CollectiveMeasurement& point : points) {
    if (is_device_of(cluster, point.gpu, point.devices) && point.payload >= kSmallest &&
        point.ranks <= cluster.devices_per_node)
      result.push_back(point);
  }
  if (result.size() < kFewestPoints) {
    throw InfeasibleError(
        fmt::format("{} timed collectives on the {} of cluster {}; a fit takes {} "
                    "(lab/fit finds the devices of raw rows)",
                    result.size(), cluster.device.name, cluster.name, kFewestPoints));
  }
  return result;
}

GroupSpread spread_of(const CollectiveMeasurement& point, const Cluster& cluster) {
  std::vector<std::int64_t> ranks(std::size_t(point.ranks), 0);
  std::iota(ranks.begin(), ranks.end(), std::int64_t{0});
  return spread_over(cluster.levels, ranks);
}

FitParameter latency_of_level(std::size_t level) {
  return {fmt::format("levels.{}.latency", level),
          FitPart::level,
          0.7,
          1e-8,
          1e-3,
          [](const Cluster& cluster, const Framework&, std::size_t l) {
            return cluster.levels[l].latency.value();
          },
          [](Cluster& cluster, Framework&, std::size_t l, double value) {
            cluster.levels[l].latency = Seconds(value);
          },
          level};
}

/// Parameters of the levels that some point crosses.
std::vector<FitParameter> parameters_of(const std::set<std::size_t>& levels,
                                        const Cluster& cluster) {
  std::vector<FitParameter> parameters = fit_parameters(cluster);
  std::erase_if(parameters, [&](const FitParameter& parameter) {
    return parameter.part != FitPart::level || !levels.contains(parameter.level);
  });
  for (const std::size_t level : levels) parameters.push_back(latency_of_level(level));
  return parameters;
}

/// States, for each level, the range of sizes for which its values hold.
void state_ranges(std::span<const CollectiveMeasurement> points,
                  const std::set<std::size_t>& levels, OpFit& fit) {
  FitRange<Bytes> range{points.front().payload, points.front().payload, 0};
  for (const CollectiveMeasurement& point : points) {
    range.from = std::min(range.from, point.payload);
    range.to = std::max(range.to, point.payload);
  }
  for (const OpFitErrors& errors : fit.errors)
    range.error = std::max(range.error, errors.unseen_median);
  for (const std::size_t level : levels) fit.cluster.efficiency->levels[level].fitted = range;
}

}  // namespace

OpFit fit_collectives(std::span<const CollectiveMeasurement> points, const Cluster& cluster) {
  if (!cluster.efficiency) {
    throw InputError("cluster " + cluster.name, "/efficiency",
                     "a fit starts from efficiency parameters");
  }
  const std::vector<CollectiveMeasurement> used = usable(points, cluster);
  const bool several = std::ranges::any_of(
      used, [&](const CollectiveMeasurement& point) { return point.ranks != used.front().ranks; });
  std::set<std::size_t> levels;
  std::vector<OpTiming> timed;
  for (const CollectiveMeasurement& point : used) {
    const GroupSpread spread = spread_of(point, cluster);
    levels.insert(spread.level);
    timed.push_back({point.kind,
                     point.source,
                     {several ? point.ranks : point.payload.count()},
                     point.time,
                     [point, spread](const Cluster& with) {
                       return modelled_communication(point.kind, point.payload, with, spread).time;
                     },
                     point.ranks});
  }
  OpFit fit = fit_timed(std::move(timed), cluster, parameters_of(levels, cluster));
  state_ranges(used, levels, fit);
  return fit;
}

}  // namespace plimsoll
