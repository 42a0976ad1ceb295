// Which device a rank runs on.
#include "models/cluster/cluster.h"

#include <fmt/format.h>

#include <algorithm>

namespace plimsoll {

std::size_t device_kind(const Cluster& cluster, std::int64_t rank) {
  const std::int64_t node = rank / cluster.devices_per_node;
  const auto& others = cluster.other_devices;
  std::size_t kind = 0;
  for (std::size_t i = 0; i < others.size() && kind == 0; ++i) {
    if (node >= others[i].first_node && node - others[i].first_node < others[i].nodes) kind = i + 1;
  }
  if (kind == 0) return 0;
  const OtherDevices& own = others[kind - 1];
  const auto efficiency_alone = [](std::optional<Efficiency> efficiency) {
    if (efficiency) efficiency->levels.clear();
    return efficiency;
  };
  if (own.device == cluster.device && own.efficiency == efficiency_alone(cluster.efficiency)) {
    return 0;
  }
  for (std::size_t i = 0; i + 1 < kind; ++i) {
    if (others[i].device == own.device && others[i].efficiency == own.efficiency) return i + 1;
  }
  return kind;
}

std::map<std::size_t, std::int64_t> devices_by_kind(const Cluster& cluster, std::int64_t ranks) {
  if (cluster.other_devices.empty()) return {{0, ranks}};
  std::map<std::size_t, std::int64_t> devices;
  for (std::int64_t first = 0; first < ranks; first += cluster.devices_per_node) {
    devices[device_kind(cluster, first)] += std::min(cluster.devices_per_node, ranks - first);
  }
  return devices;
}

const Device& device_of(const Cluster& cluster, std::size_t kind) {
  return kind == 0 ? cluster.device : cluster.other_devices.at(kind - 1).device;
}

std::string pointer_of_device(std::size_t kind) {
  return kind == 0 ? "/device" : fmt::format("/other_devices/{}/device", kind - 1);
}

}  // namespace plimsoll
