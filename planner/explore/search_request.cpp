// The space that a search request spans, and whether the cluster has its devices.
#include "planner/explore/search_request.h"

#include <fmt/format.h>

#include "base/error.h"

namespace plimsoll {

Space enumerate(const SearchRequest& request) {
  const Target& target = request.target;
  const Constraints& held = request.constraints;
  return enumerate(target.job, target.framework(), target.devices, held.fixed,
                   units_of(target.cluster()), held.limits, held.tried);
}

std::string devices_text(std::int64_t devices) {
  return fmt::format("{} device{}", devices, devices == 1 ? "" : "s");
}

bool is_oversubscribed(const Target& target) {
  const Cluster& cluster = target.cluster();
  if (!cluster.nodes) return false;
  const std::int64_t available = *cluster.nodes * cluster.devices_per_node;
  if (target.devices <= available) return false;
  if (cluster.device.kind == DeviceKind::cpu_core) return true;
  throw InfeasibleError(fmt::format("cluster {} has {} devices ({} nodes of {}), {} were asked for",
                                    cluster.name, available, *cluster.nodes,
                                    cluster.devices_per_node, target.devices));
}

}  // namespace plimsoll
