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
  Picoseconds span;            ///< width of the time axis; equal for charts that are compared
  Seconds step_time;           ///< marked on the axis
  std::size_t most_ranks = 0;  ///< ranks that are drawn, spread from the first to the last
};

/// Returns plain SVG. `data-interval-count` holds the number of bars; each is a `rect.interval`
/// with a title.
std::string gantt_svg(const Timeline& timeline, const Strategy& strategy,
                      const GanttOptions& options);

/// Returns swatches of the phases. Recompute is among them only where the strategy recomputes.
std::string gantt_legend(const Strategy& strategy);

}  // namespace plimsoll
