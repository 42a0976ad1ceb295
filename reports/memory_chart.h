// The memory curve of a rank, stacked by class.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "graph/timeline.h"

namespace plimsoll {

struct MemoryChartOptions {
  std::string_view title;   ///< above the chart
  Picoseconds begin, span;  ///< of the time axis
  Picoseconds end;          ///< the last point holds until here
  Bytes most;               ///< of the byte axis; equal for charts that are compared
  Bytes reserved;           ///< for what is alive: a dotted line
  Bytes room;               ///< that a device has for it: a dashed line where it is on the axis
};

/// Plain SVG: live bytes over the step, one layer per class, the peak marked.
std::string memory_svg(const RankMemory& memory, const MemoryChartOptions& options);

/// Swatches of the classes that occur in `timeline`.
std::string memory_legend(const Timeline& timeline);

}  // namespace plimsoll
