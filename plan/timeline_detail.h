// A timeline of any length is coarsened to a few thousand intervals, from its first to its last
// instant.
#pragma once

#include "graph/timeline.h"

namespace plimsoll {

/// RankTimes are the times of a rank's ops and communications in a step, from its timeline in full
/// detail.
struct RankTimes {
  std::int64_t rank = 0;
  Exposed exposed;
  std::vector<Picoseconds> by_kind;  ///< in order of OpKind
  bool operator==(const RankTimes&) const = default;
};
RankTimes times_of(const Timeline& timeline, std::int64_t rank);

/// Returns the ranks of a timeline. Of more than `most` (2 or above) ranks it returns `most`,
/// spread from the first to the last.
std::vector<std::int64_t> ranks_spread(const Timeline& timeline, std::size_t most);

/// Merges intervals that are shorter than a resolution. Intervals that follow each other on a
/// stream of a rank, within a span of the resolution, become one for each phase. The merged
/// interval begins where the first one did (that of a second phase after the first phase's), lasts
/// as long as all of them together, and counts them (Interval::ops). Kind, routine, layer and
/// micro-batch are kept where all are equal, and a communication is posted when the first one was.
/// Resolutions are the timeline's length, halved in quarter steps. The finest one that gives at
/// most `most` intervals is taken and returned. Returns 0 where the timeline was short enough and
/// is unchanged.
Picoseconds draw_together(Timeline& timeline, std::size_t most);

/// Keeps at most `most` (2 or more) points of each curve. It cuts the time into equal parts and
/// keeps the highest point of each (the first of equals) and the last point of the curve, so the
/// peak stays.
void thin_curves(Timeline& timeline, std::size_t most);

}  // namespace plimsoll
