// Least changes: finds changes of a request with which something fits where nothing does.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner/explore/search_request.h"
#include "planner/refusal/leanest.h"

namespace plimsoll {

/// Returns the next number of devices to try after `low`, where nothing fits. It is twice as many
/// within a node, then whole nodes, twice as many each time. It is 0 beyond `most`.
std::int64_t more_devices(std::int64_t low, std::int64_t per_node, std::int64_t most);
/// Returns a number of devices in the middle between `low`, where nothing fits, and `high`, where
/// something does. Beyond one node it is of whole nodes. It is 0 where there is none.
std::int64_t devices_between(std::int64_t low, std::int64_t high, std::int64_t per_node);

/// Returns lines, each with one change and a strategy that then fits. The strategy was lowered,
/// simulated and replayed. The changes are:
///
///   - without one choice that `request` fixes;
///   - with memory for even routing of experts' rows;
///   - with narrower gradients and optimizer states that the framework has, the mildest that fit;
///   - with half, a quarter ... of the global batch, where `lasting_fits`;
///   - on more devices, by doubling, then narrowing.
///
/// Strategies have the smallest micro-batch and whole layers recomputed, unless the request fixes
/// these. Once `passed` returns true, the last line says which changes were not looked at.
std::vector<std::string> least_changes(const SearchRequest& request, bool lasting_fits,
                                       const Passed& passed);

/// Returns lines, each with one change that makes a strategy fit on as many devices, the fastest
/// first. The changes are the smallest micro-batch, all layers recomputed, tokens split over mp,
/// replicas that share states, memory for even routing, and the next sharding stages. Another
/// change is twice the mp or pp with half of another degree. Where none makes it fit, one line says
/// so.
std::vector<std::string> single_changes(const Target& target, const Strategy& strategy,
                                        std::int64_t threads = 0);

}  // namespace plimsoll
