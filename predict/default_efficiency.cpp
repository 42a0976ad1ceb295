// Takes the efficiency of a preset with the same device, or means over all presets.
#include "predict/default_efficiency.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/log_statistics.h"
#include "models/calibration/fitted_calibration.h"
#include "models/cluster/network_kind.h"
#include "models/presets/presets.h"
#include "predict/fit_transfer.h"

namespace plimsoll {
namespace {

/// Returns the presets of GPUs that state an efficiency.
const std::vector<Cluster>& known_clusters() {
  static const std::vector<Cluster> clusters = [] {
    std::vector<Cluster> result;
    for (const Preset& preset : cluster_presets()) {
      Cluster cluster = parse_cluster(preset.text, std::string(preset.name));
      if (cluster.device.kind == DeviceKind::gpu && cluster.efficiency)
        result.push_back(std::move(cluster));
    }
    return result;
  }();
  return clusters;
}

/// Returns one preset for each device.
std::vector<const Cluster*> known_devices() {
  std::vector<const Cluster*> devices;
  for (const Cluster& cluster : known_clusters()) {
    const bool seen = std::any_of(devices.begin(), devices.end(), [&](const Cluster* other) {
      return device_difference(other->device, cluster.device).empty();
    });
    if (!seen) devices.push_back(&cluster);
  }
  INVARIANT(!devices.empty(), "cluster presets of GPUs");
  return devices;
}

template <class Get>
LogStatistics over(const std::vector<const Cluster*>& devices, Get get) {
  LogStatistics result;
  for (const Cluster* cluster : devices) result.add(get(*cluster));
  return result;
}

LevelEfficiency mean_level(bool within_node) {
  LogStatistics bandwidth, time;
  for (const Cluster& cluster : known_clusters()) {
    for (std::size_t l = 0; l < cluster.levels.size(); ++l) {
      if (is_within_node(cluster, l) != within_node) continue;
      bandwidth.add(cluster.efficiency->levels[l].bandwidth_fraction);
      time.add(cluster.efficiency->levels[l].fixed_time.value());
    }
  }
  return {bandwidth.geometric_mean(), Seconds(time.geometric_mean()), {}};
}

/// Averages the parameters of kernels, which fit_parameters() knows by name, over all devices.
Efficiency mean_kernels(const Cluster& like) {
  const std::vector<const Cluster*> all = known_devices();
  std::vector<const Cluster*> with_fp8;
  for (const Cluster* cluster : all) {
    if (cluster->device.peak_fp8) with_fp8.push_back(cluster);
  }
  Cluster mean = like;
  mean.efficiency.emplace();
  Framework unused;
  for (const FitParameter& parameter : fit_parameters(mean)) {
    if (is_of_the_host(parameter.part)) continue;
    const bool of_fp8 =
        parameter.part == FitPart::products_of_fp8 || parameter.part == FitPart::products_by_rows;
    const LogStatistics found = over(of_fp8 ? with_fp8 : all, [&](const Cluster& cluster) {
      return parameter.get(cluster, unused, parameter.level);
    });
    parameter.set(mean, unused, parameter.level, found.geometric_mean());
  }
  Efficiency& result = *mean.efficiency;
  const auto time = [&](AttentionEfficiency Efficiency::*attention) {
    return Seconds(over(all, [&](const Cluster& cluster) {
                     return ((*cluster.efficiency).*attention).fixed_time.value();
                   }).geometric_mean());
  };
  result.attention_forward.fixed_time = time(&Efficiency::attention_forward);
  result.attention_backward.fixed_time = time(&Efficiency::attention_backward);
  result.matmul.units = std::llround(over(all, [](const Cluster& cluster) {
                                       return double(cluster.efficiency->matmul.units);
                                     }).geometric_mean());
  return result;
}

}  // namespace

bool is_within_node(const Cluster& cluster, std::size_t level) {
  const std::int64_t devices = cluster.levels[level].devices;
  return devices > 0 && devices <= cluster.devices_per_node;
}

DefaultEfficiency default_efficiency(const Cluster& cluster) {
  DefaultEfficiency result;
  const Cluster* same = nullptr;
  for (const Cluster& known : known_clusters()) {
    if (same == nullptr && device_difference(known.device, cluster.device).empty()) same = &known;
  }
  if (same != nullptr) {
    result.efficiency = *same->efficiency;
    result.words = fmt::format("of the same device in {}", same->name);
  } else {
    const std::vector<const Cluster*> devices = known_devices();
    result.efficiency = mean_kernels(cluster);
    result.open = kNormal90 * over(devices, [](const Cluster& known) {
                                return known.efficiency->matmul.peak_fraction;
                              }).deviation();
    result.words =
        fmt::format("not stated; means over the {} devices of cluster presets", devices.size());
  }
  result.efficiency.levels.clear();
  for (std::size_t l = 0; l < cluster.levels.size(); ++l) {
    const bool known = same != nullptr && l < same->levels.size() &&
                       level_difference(same->levels[l], cluster.levels[l]).empty();
    const NetworkKind* kind = find_network_kind(cluster.levels[l].network);
    result.efficiency.levels.push_back(known ? same->efficiency->levels[l]
                                             : mean_level(is_within_node(cluster, l)));
    if (kind != nullptr)
      result.efficiency.levels.back().bandwidth_fraction = kind->bandwidth_fraction;
  }
  return result;
}

}  // namespace plimsoll
