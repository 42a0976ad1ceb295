// Least changes: what would have to be otherwise for something to fit where nothing does.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner/space/search_request.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {

/// The next number of devices to try after `low`, where nothing fits: within a node twice as many,
/// at most all of it, then whole nodes, twice as many each time; 0 beyond `most`.
std::int64_t more_devices(std::int64_t low, std::int64_t per_node, std::int64_t most);
/// Between `low`, where nothing fits, and `high`, where something does: the middle one, within one
/// node of devices, else of whole nodes; 0 where there is none.
std::int64_t devices_between(std::int64_t low, std::int64_t high, std::int64_t per_node);

/// Lines, each with one change and a strategy that then fits by lowering, simulating and replaying
/// it: without one choice that `request` holds; with a choice that no search varies and the
/// framework has (narrower gradients and optimizer states, the mildest that do); with half, a
/// quarter ... of the global batch, where `lives` (what lives between steps fits); on more devices,
/// by doubling, then narrowing. Other choices are those of the search, in the smallest micro-batch
/// and with whole layers recomputed where nothing holds these. Once `passed`, the last line says
/// what was not looked at.
std::vector<std::string> least_changes(const SearchRequest& request, const CostModel& costs,
                                       bool lives, const std::function<bool()>& passed);

/// Lines, each with one change of a strategy that does not fit, with which it does, the fastest
/// first: the smallest micro-batch, all layers recomputed, tokens split over mp, replicas that
/// share states, the next sharding stages, and twice the mp or pp with half of another degree. On
/// as many devices. One line that says so where there is none.
std::vector<std::string> single_changes(const SearchRequest& request, const CostModel& costs,
                                        const Strategy& strategy);

}  // namespace plimsoll
