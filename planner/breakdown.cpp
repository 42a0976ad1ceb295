// Breakdown: a sweep over the critical rank's intervals.
#include "planner/breakdown.h"

#include <algorithm>
#include <array>
#include <map>

#include "graph/op_table.h"

namespace plimsoll {
namespace {

/// What can be going on at an instant, by precedence: the first that is active names the instant.
enum Activity : std::size_t {
  kForward,
  kRecompute,
  kBackward,
  kOptimizer,
  kTransfer,
  kCollectiveWait,
  kStageWait,
  kActivities,
};

Activity compute_activity(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return kForward;
    case Phase::recompute:
      return kRecompute;
    case Phase::backward:
    case Phase::backward_weight:
      return kBackward;
    case Phase::optimizer:
      return kOptimizer;
  }
  return kForward;
}

/// Starts (+1) and ends (-1) of activities by instant.
using Changes = std::map<Picoseconds, std::array<int, kActivities>>;

void add_span(Changes& changes, Activity activity, Picoseconds begin, Picoseconds end,
              Picoseconds horizon) {
  end = std::min(end, horizon);
  if (begin >= end) return;
  ++changes[begin][activity];
  --changes[end][activity];
}

void add_interval(Changes& changes, const Interval& interval, Picoseconds horizon, bool pipelined) {
  if (interval.kind && communicates(*interval.kind)) {
    const bool for_stage = row(*interval.kind).op_class == OpClass::point_to_point ||
                           (pipelined && interval.stream == Stream::world);
    add_span(changes, for_stage ? kStageWait : kCollectiveWait, interval.posted, interval.begin,
             horizon);
    add_span(changes, kTransfer, interval.begin, interval.end, horizon);
  } else {
    add_span(changes, compute_activity(interval.phase), interval.begin, interval.end, horizon);
  }
}

std::array<Picoseconds, kActivities> sweep(const Changes& changes) {
  std::array<Picoseconds, kActivities> totals = {};
  std::array<int, kActivities> active = {};
  std::optional<Picoseconds> since;
  for (const auto& [instant, change] : changes) {
    if (since) {
      const auto first = std::find_if(active.begin(), active.end(), [](int n) { return n > 0; });
      if (first != active.end()) totals[std::size_t(first - active.begin())] += instant - *since;
    }
    for (std::size_t i = 0; i < kActivities; ++i) active[i] += change[i];
    since = instant;
  }
  return totals;
}

}  // namespace

Breakdown break_down(std::span<const Interval> critical, Seconds step_time, bool pipelined) {
  std::optional<Picoseconds> start;
  for (const Interval& interval : critical) {
    start = start ? std::min(*start, interval.posted) : interval.posted;
  }
  Changes changes;
  for (const Interval& interval : critical) {
    // The next step starts a period later; what still runs then is counted at its beginning.
    add_interval(changes, interval, *start + to_picoseconds(step_time), pipelined);
  }
  const std::array<Picoseconds, kActivities> totals = sweep(changes);

  Breakdown breakdown;
  breakdown.forward = totals[kForward].seconds();
  breakdown.recompute = totals[kRecompute].seconds();
  breakdown.backward = totals[kBackward].seconds();
  breakdown.optimizer = totals[kOptimizer].seconds();
  breakdown.exposed_communication = (totals[kTransfer] + totals[kCollectiveWait]).seconds();
  breakdown.bubble = totals[kStageWait].seconds();
  Picoseconds counted;
  for (Picoseconds total : totals) counted += total;
  // Rounding to picoseconds may leave the rest a hair below zero.
  breakdown.dispatch = std::max(Seconds(), step_time - counted.seconds());
  return breakdown;
}

}  // namespace plimsoll
