// Exposed communication and times by kind are computed from a Timeline.
#include "graph/timeline.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "graph/op_table.h"

namespace plimsoll {

namespace {

struct Range {
  Picoseconds begin, end;
};

/// Sorted, disjoint union.
std::vector<Range> united(std::vector<Range> ranges) {
  std::erase_if(ranges, [](const Range& range) { return range.end <= range.begin; });
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> result;
  for (const Range& range : ranges) {
    if (!result.empty() && range.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, range.end);
    } else {
      result.push_back(range);
    }
  }
  return result;
}

/// Length of what `ranges` has outside `holes`; both sorted and disjoint.
Picoseconds length_outside(const std::vector<Range>& ranges, const std::vector<Range>& holes) {
  Picoseconds length;
  std::size_t hole = 0;
  for (const Range& range : ranges) {
    Picoseconds at = range.begin;
    while (hole < holes.size() && holes[hole].end <= range.begin) ++hole;
    for (std::size_t i = hole; i < holes.size() && holes[i].begin < range.end; ++i) {
      if (holes[i].begin > at) length += holes[i].begin - at;
      at = std::max(at, holes[i].end);
    }
    if (at < range.end) length += range.end - at;
  }
  return length;
}

}  // namespace

Exposed exposed_communication(const Timeline& timeline, std::int64_t rank) {
  std::vector<Range> compute, waits, transfers;
  for (const Interval& interval : timeline.intervals) {
    if (interval.rank != rank) continue;
    if (!interval.kind || !communicates(*interval.kind)) {
      compute.push_back({interval.begin, interval.end});
    } else {
      waits.push_back({interval.posted, interval.begin});
      transfers.push_back({interval.begin, interval.end});
    }
  }
  const std::vector<Range> busy = united(compute);
  std::vector<Range> busy_or_transfer = transfers;
  busy_or_transfer.insert(busy_or_transfer.end(), compute.begin(), compute.end());
  return {length_outside(united(waits), united(busy_or_transfer)),
          length_outside(united(transfers), busy)};
}

std::vector<Picoseconds> time_by_kind(const Timeline& timeline, std::int64_t rank) {
  std::vector<Picoseconds> times(kOpKinds);
  for (const Interval& interval : timeline.intervals) {
    if (interval.rank != rank || !interval.kind) continue;
    times[std::size_t(*interval.kind)] += interval.end - interval.begin;
  }
  return times;
}

/// Intervals are large: their numbers are sorted, and each interval moves once.
void sort_intervals(Timeline& timeline) {
  std::vector<Interval>& intervals = timeline.intervals;
  // Copies of the keys would take half as much memory as the intervals.
  const auto key = [&](std::uint32_t from) {
    const Interval& one = intervals[from];
    return std::tuple(one.rank, one.begin, one.stream, one.end, from);
  };
  INVARIANT(intervals.size() <= std::numeric_limits<std::uint32_t>::max(), "a timeline in memory");
  std::vector<std::uint32_t> order(intervals.size());
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
  for (std::uint32_t first = 0; first < order.size(); ++first) {
    if (order[first] == first) continue;
    // Along a cycle of places, each of which takes what belongs there.
    Interval taken = std::move(intervals[first]);
    std::uint32_t place = first;
    for (; order[place] != first; place = std::exchange(order[place], place)) {
      intervals[place] = std::move(intervals[order[place]]);
    }
    intervals[place] = std::move(taken);
    order[place] = place;
  }
}

}  // namespace plimsoll
