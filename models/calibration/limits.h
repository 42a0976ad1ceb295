// Limits of a calibration's points, which readers of files and measurements share.
#pragma once

#include <cstdint>

namespace plimsoll {

/// The fewest timings on which a Sample may rest: its quartiles need that many.
inline constexpr std::int64_t kLeastSamples = 7;
/// The most ranks that a point or a table of devices may name.
inline constexpr std::int64_t kMostRanksOfPoint = std::int64_t{1} << 22;

}  // namespace plimsoll
