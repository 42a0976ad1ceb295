// Hosts of ranks are compared with the nodes of a plan.
#include "runtime/command/placement.h"

#include <fmt/format.h>

#include <map>

namespace plimsoll {

Verdict fits_placement(std::int64_t devices_per_node, std::span<const std::string> hosts) {
  std::map<std::string, std::size_t> first_on;  // by host: its first rank
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const std::size_t node = rank / std::size_t(devices_per_node);
    const std::size_t first_of_node = node * std::size_t(devices_per_node);
    if (hosts[rank] != hosts[first_of_node]) {
      return Verdict::no(fmt::format(
          "ranks {} and {} are on hosts {} and {}; the plan puts {} ranks on each node, in order",
          first_of_node, rank, hosts[first_of_node], hosts[rank], devices_per_node));
    }
    const std::size_t other = first_on.try_emplace(hosts[rank], rank).first->second;
    if (other / std::size_t(devices_per_node) != node) {
      return Verdict::no(fmt::format(
          "ranks {} and {} share host {}; the plan puts them on nodes {} and {}, {} rank{} on each",
          other, rank, hosts[rank], other / std::size_t(devices_per_node), node, devices_per_node,
          devices_per_node == 1 ? "" : "s"));
    }
  }
  return Verdict::yes();
}

}  // namespace plimsoll
