// This check tells whether processes run where a plan places its ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"

namespace plimsoll {

/// Checks that ranks fill nodes in order, `devices_per_node` on each. Ranks of a node must share a
/// host, and ranks of different nodes must not. `hosts` is by rank. The reason names two ranks, and
/// the start command that would place them correctly.
Verdict fits_placement(std::int64_t devices_per_node, std::span<const std::string> hosts);

}  // namespace plimsoll
