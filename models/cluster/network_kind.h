// Network kinds: what networks between nodes typically reach, by the protocol that they speak. They
// are the files of models/presets/networks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "models/cluster/cluster.h"

namespace plimsoll {

struct NetworkKind {
  std::string key;                ///< "ethernet", as Level::network has it
  std::string name;               ///< "Ethernet (TCP)", for people
  Seconds latency;                ///< of one step of a collective
  double bandwidth_fraction = 1;  ///< share of the stated bandwidth that collectives reach
  /// Where they come from. `covers` is "latency" or "bandwidth_fraction".
  std::vector<Source> sources;
};

/// Returns all kinds, ordered by key.
const std::vector<NetworkKind>& network_kinds();
/// Returns the kind with this key, or null.
const NetworkKind* find_network_kind(std::string_view key);
/// Makes the outermost level of the cluster a network of this kind. Its bandwidth stays.
void set_network_kind(const NetworkKind& kind, Cluster& cluster);
/// Returns the keys, with commas between.
std::string known_network_kinds();

}  // namespace plimsoll
