// The pipeline timeline is drawn with one row per rank and stream, and one bar per interval.
#pragma once

#include <string>
#include <string_view>

#include "graph/timeline.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// timeline_begin() is the first instant that the timeline shows; charts draw relative to it.
Picoseconds timeline_begin(const Timeline& timeline);
Picoseconds timeline_end(const Timeline& timeline);

struct GanttOptions {
  std::string_view id;         ///< id of the svg
  std::string_view title;      ///< text for readers who do not see the chart
  Picoseconds begin;           ///< first instant of the time axis
  Picoseconds span;            ///< width of the time axis; equal for charts that are compared
  Seconds step_time;           ///< marked on the axis
  std::size_t most_ranks = 0;  ///< ranks that are drawn, spread from the first to the last
};

/// Counts time in whole units from `begin`.
struct TimelineClock {
  Picoseconds begin;
  std::int64_t unit = 1;  ///< picoseconds
  std::int64_t units(Picoseconds time) const { return ((time - begin).count() + unit / 2) / unit; }
};

std::string_view stream_label(Stream stream);  ///< "compute", "send next"
/// Returns "rank 8 · stage 1"; without stages "rank 8".
std::string rank_label(std::int64_t rank, const Strategy& strategy);

/// Returns plain SVG. `data-interval-count` holds the number of bars. The bars of one phase on one
/// stream are one path, so that the page of a long step has few elements.
std::string gantt_svg(const Timeline& timeline, const Strategy& strategy,
                      const GanttOptions& options);

/// Returns a table of the time of each rank by phase, in communication and waiting for it.
std::string gantt_table(const Timeline& timeline, const Strategy& strategy, std::size_t most_ranks);

/// Returns swatches of the phases. Recompute is among them only where the strategy recomputes.
std::string gantt_legend(const Strategy& strategy);

}  // namespace plimsoll
