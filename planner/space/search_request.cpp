// Whether a cluster has the devices that a search is asked for.
#include "planner/space/search_request.h"

#include <fmt/format.h>

#include "base/error.h"

namespace plimsoll {

std::string devices_text(std::int64_t devices) {
  return fmt::format("{} device{}", devices, devices == 1 ? "" : "s");
}

bool check_devices(const Cluster& cluster, std::int64_t devices) {
  if (!cluster.nodes) return false;
  const std::int64_t available = *cluster.nodes * cluster.devices_per_node;
  if (devices <= available) return false;
  if (cluster.device.kind == DeviceKind::cpu_core) return true;
  throw InfeasibleError(fmt::format("cluster {} has {} devices ({} nodes of {}), {} were asked for",
                                    cluster.name, available, *cluster.nodes,
                                    cluster.devices_per_node, devices));
}

}  // namespace plimsoll
