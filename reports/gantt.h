// The pipeline timeline: one row per rank and stream, one bar per interval.
#pragma once

#include <string>
#include <string_view>

#include "graph/timeline.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// First instant that the timeline shows; charts draw relative to it.
Picoseconds timeline_begin(const Timeline& timeline);
Picoseconds timeline_end(const Timeline& timeline);

struct GanttOptions {
  std::string_view id;         ///< of the svg
  std::string_view title;      ///< for those who do not see it
  Picoseconds span;            ///< width of the time axis; equal for charts that are compared
  Seconds step_time;           ///< marked on the axis
  std::size_t most_ranks = 0;  ///< drawn, from the first to the last
};

/// Plain SVG. `data-interval-count` holds the number of bars, each a `rect.interval` with a title.
std::string gantt_svg(const Timeline& timeline, const Strategy& strategy,
                      const GanttOptions& options);

/// Swatches of the phases; mentions recompute only where the strategy recomputes.
std::string gantt_legend(const Strategy& strategy);

}  // namespace plimsoll
