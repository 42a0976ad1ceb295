// A Timeline says when ops ran and how much memory was live. Predictions and measurements share the
// type, so that comparing them is a subtraction.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "graph/op.h"
#include "graph/tensor.h"

namespace plimsoll {

/// An Interval is one op on one stream of one rank, or one whole call. A whole call is shown on its
/// compute stream, from the begin of its first op there to the end of its last; communications
/// inside the call are not shown. Local ops and calls have posted == begin.
struct Interval {
  std::int64_t rank = 0;
  Stream stream = Stream::compute;
  std::optional<OpKind> kind = OpKind::add;  ///< absent: a whole call
  Phase phase = Phase::forward;
  std::string routine;  ///< name of the routine it belongs to
  std::optional<std::int64_t> layer, micro_batch;
  Picoseconds posted;  ///< a communication: when this rank posted it
  Picoseconds begin;   ///< a communication: when the last participant had arrived
  Picoseconds end;
  /// Above 1, the interval stands for so many ops or calls that followed each other on the stream.
  /// It lasts as long as all of them (plan/timeline_detail.h). Its routine is empty where they have
  /// several.
  std::int64_t ops = 1;
  bool operator==(const Interval&) const = default;
};

/// A MemoryPoint has the live bytes of a rank from `time` until the next point.
struct MemoryPoint {
  Picoseconds time;
  BytesByRole by_role;
  bool operator==(const MemoryPoint&) const = default;
};

struct RankMemory {
  std::int64_t rank = 0;
  Bytes peak;
  BytesByRole by_role;  ///< at the first peak
  Bytes arena;          ///< extent with fragmentation
  std::vector<MemoryPoint> curve;
  bool operator==(const RankMemory&) const = default;
};

struct Timeline {
  std::vector<Interval> intervals;  ///< ordered by (rank, begin, stream, end)
  std::vector<RankMemory> memory;   ///< ascending rank
  bool operator==(const Timeline&) const = default;
};

/// Exposed communication is not hidden by compute: the rank's compute stream is empty and one of
/// its communications is pending. The time before the last participant arrived is wait, and the
/// time after it is transfer. Where both overlap, the time counts as transfer.
struct Exposed {
  Picoseconds wait, transfer;
};
Exposed exposed_communication(const Timeline& timeline, std::int64_t rank);

/// Returns summed durations (end - begin) by op kind over one rank, in order of OpKind. Absent
/// kinds are 0, and whole calls have no kind.
std::vector<Picoseconds> time_by_kind(const Timeline& timeline, std::int64_t rank);

void sort_intervals(Timeline& timeline);

}  // namespace plimsoll
