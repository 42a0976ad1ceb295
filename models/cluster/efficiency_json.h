// These functions read and write the `efficiency` member of a cluster file and the sources of its
// numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "models/cluster/cluster.h"

namespace plimsoll {

/// Reads the member. `levels` is how many levels the cluster has. It is absent for a device alone,
/// which has no levels.
Efficiency efficiency_from(JsonObject object, std::optional<std::size_t> levels);
Json efficiency_json(const Efficiency& efficiency);

/// Reads the member `source` of `cluster` into source or sources. Where the member is an object,
/// each number of `document` (the whole file) must be covered, and each source must cover a number.
void read_sources(JsonObject& object, const Json& document, Cluster& cluster);
Json sources_json(const Cluster& cluster);

}  // namespace plimsoll
