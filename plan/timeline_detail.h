// Timeline detail: a timeline of any length within a few thousand intervals, from its first to its
// last instant.
#pragma once

#include "graph/timeline.h"

namespace plimsoll {

/// The times of a rank's ops and communication in a step, from its timeline in full detail.
struct RankTimes {
  std::int64_t rank = 0;
  Exposed exposed;
  std::vector<Picoseconds> by_kind;  ///< in order of OpKind
  bool operator==(const RankTimes&) const = default;
};
RankTimes times_of(const Timeline& timeline, std::int64_t rank);

/// The ranks of a timeline; of more than `most` (2 or above) so many, from the first to the last.
std::vector<std::int64_t> ranks_spread(const Timeline& timeline, std::size_t most);

/// Draws together what is shorter than a resolution: intervals that follow each other on a stream
/// of a rank, within a span of the resolution, become one for each phase. It begins where the first
/// of them did (a second phase's after the first one's), lasts as long as all of them together, and
/// counts them (Interval::ops); kind, routine, layer and micro-batch are kept where all have the
/// same, and a communication is posted when the first of them was. The resolution is the finest
/// of its length, halved in quarter steps, that gives at most `most` intervals; at worst its
/// length. Returns it; 0 where the timeline was short enough, and is unchanged.
Picoseconds draw_together(Timeline& timeline, std::size_t most);

/// At most `most` (2 or more) points of each curve: of equal parts of its time the highest point,
/// the first of equals, and the last one. So the peak stays.
void thin_curves(Timeline& timeline, std::size_t most);

}  // namespace plimsoll
