// Timeline data: a timeline for the page's script, in few bytes.
#pragma once

#include <string>

#include "reports/gantt.h"

namespace plimsoll {

/// Intervals of one rank that are shown together.
struct TimelinePart {
  const Timeline& timeline;
  std::string_view suffix;  ///< behind the names of ranks: ", op by op"
};

/// Returns JSON for reports/page/pipeline.js:
///
///   unit_s       length of a unit of time; a step has at most some ten million
///   span, step   length of the time axis, and the step time, in units
///   names        what intervals are: kind of op and routine
///   phases       class of each phase's colour
///   lanes[]      rank, stream, tall (whether it is a compute stream), and columns with an entry
///                for each interval: gap (from the end of the one before, or the begin), length,
///                name, phase; and where some interval has one: layer and micro_batch (0: none,
///                else 1 more than the number), ops, wait (from posted to begin)
///
/// All of it is ASCII.
std::string timeline_data(const std::vector<TimelinePart>& parts, const Strategy& strategy,
                          const GanttOptions& options);

}  // namespace plimsoll
