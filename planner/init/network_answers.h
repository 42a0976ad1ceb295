// Network answers: the network between nodes of a new cluster, from flags of `planner init
// cluster`.
#pragma once

#include <string>

#include "models/cluster/cluster.h"
#include "planner/init/init.h"

namespace plimsoll {

/// Whether a level joins several nodes.
bool joins_nodes(const Cluster& cluster, const Level& level);

/// Returns why a text is no bandwidth, or nothing.
std::string refuse_rate(const std::string& text);

/// Says that what `covers` points to comes from the answer `key`, unless one text covers all
/// numbers of the cluster.
void set_source(Cluster& cluster, const std::string& covers, const std::string& key,
                const Answers& answers);

/// Changes the outermost level as the answers say, or makes one where the preset is one node:
/// - network: its bandwidth per device (as it is, if absent), or per card with cards-per-node,
/// which devices then share;
/// - network-kind: its latency and the share of its bandwidth that is reached;
/// - nodes-per-switch, oversubscription: a level of these nodes at that bandwidth, and one that
///   joins them at a part of it.
/// Throws UsageError.
void set_network(Cluster& cluster, const Answers& answers);

/// Gives the last nodes the devices of other presets, for --with "dgx-a100-80gb:2,hgx-h200:1".
/// Levels get the lower bandwidth of the presets. Throws UsageError where nodes are wired
/// otherwise.
void add_other_devices(Cluster& cluster, const Answers& answers);
/// Returns the number of nodes that "dgx-a100-80gb:2,hgx-h200:1" adds.
std::int64_t other_nodes(const std::string& with);

}  // namespace plimsoll
