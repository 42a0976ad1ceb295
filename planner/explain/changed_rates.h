// Changed rates: a target whose hardware is faster or slower in one respect, all else being equal.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "predict/target.h"

namespace plimsoll {

/// A rate of the machine that can be changed by itself.
enum class Rate : std::uint8_t {
  arithmetic,        ///< products and attention
  memory_bandwidth,  ///< of the devices
  link_within_node,  ///< bandwidth of levels that join devices of one node
  network,           ///< bandwidth of all other levels
  host,              ///< how fast the host issues ops
};
inline constexpr std::array kRates = {Rate::arithmetic, Rate::memory_bandwidth,
                                      Rate::link_within_node, Rate::network, Rate::host};
/// Returns "arithmetic", "memory bandwidth", "links within a node", "network", "host".
std::string_view to_text(Rate rate);

/// Returns the target with `factor` times the rate. The rest stays: shares of the rate that were
/// fitted, fixed times of kernels and latencies of links.
///
///   arithmetic, memory bandwidth, links   the cluster's rates, which fitted shares multiply
///   host                                  all times of the framework for issuing an op are divided
///   all                                   times that a calibration measured are divided as a
///   whole,
///                                         with the fixed part in them
///
/// Returns nothing where the cluster has no such links, neither stated nor measured. Programs and
/// memory of a strategy do not depend on these rates.
std::optional<Target> with_rate(const Target& target, Rate rate, double factor);

/// Returns the target whose devices have `times` the memory.
Target with_memory(const Target& target, std::int64_t times);

}  // namespace plimsoll
