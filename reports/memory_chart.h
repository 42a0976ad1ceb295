// The memory chart is the memory curve of a rank, stacked by class.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "graph/timeline.h"

namespace plimsoll {

struct MemoryChartOptions {
  std::string_view title;   ///< above the chart
  Picoseconds begin, span;  ///< begin and length of the time axis
  Picoseconds end;          ///< the last point is drawn up to here
  Bytes most;               ///< end of the byte axis; equal for charts that are compared
  Bytes reserved;           ///< memory reserved for live bytes: a dotted line
  Bytes room;  ///< memory that a device has for them: a dashed line where it is on the axis
};

/// Returns plain SVG: live bytes over the step, with one layer per class and the peak marked.
std::string memory_svg(const RankMemory& memory, const MemoryChartOptions& options);

/// Returns a table of the curve, with at most kMostTablePoints of its points (thin_curves()). Times
/// count from `begin`.
std::string memory_table(const RankMemory& memory, Picoseconds begin);
inline constexpr std::size_t kMostTablePoints = 100;

/// Returns swatches of the classes that occur in `timeline`.
std::string memory_legend(const Timeline& timeline);

}  // namespace plimsoll
