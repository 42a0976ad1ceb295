// Whether processes run where a plan puts its ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"

namespace plimsoll {

/// Ranks fill nodes in order, `devices_per_node` on each: those of a node must share a host, those
/// of different nodes must not. `hosts`: by rank. The reason names two ranks and what would start
/// them right.
Verdict fits_placement(std::int64_t devices_per_node, std::span<const std::string> hosts);

}  // namespace plimsoll
