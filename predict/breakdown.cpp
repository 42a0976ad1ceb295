// Sweeps over the critical rank's intervals in order of time.
#include "predict/breakdown.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "graph/op_table.h"

namespace plimsoll {
namespace {

/// Activities by precedence: the first that is active names the instant.
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

/// A start (+1) or an end (-1) of an activity.
struct Change {
  Picoseconds at;
  Activity activity;
  std::uint16_t group;
  int by;
};

/// Times by the activity that names them, and for communication by group.
struct Totals {
  explicit Totals(std::size_t groups) : transfer(groups), wait(groups), hidden(groups) {}
  std::array<Picoseconds, kActivities> by_activity = {};
  std::vector<Picoseconds> transfer, wait, hidden;
};

class Sweep {
 public:
  Sweep(std::size_t groups, Picoseconds horizon)
      : horizon_(horizon), by_group_(groups), totals_(groups) {}

  void add(const Interval& interval, std::uint16_t group, bool pipelined) {
    if (interval.kind && communicates(*interval.kind)) {
      const bool for_stage = row(*interval.kind).op_class == OpClass::point_to_point ||
                             (pipelined && interval.stream == Stream::world);
      add_span(for_stage ? kStageWait : kCollectiveWait, group, interval.posted, interval.begin);
      add_span(kTransfer, group, interval.begin, interval.end);
    } else {
      add_span(compute_activity(interval.phase), group, interval.begin, interval.end);
    }
  }

  /// Adds up all instants.
  Totals run() && {
    std::stable_sort(changes_.begin(), changes_.end(),
                     [](const Change& a, const Change& b) { return a.at < b.at; });
    std::optional<Picoseconds> since;
    for (const Change& change : changes_) {
      if (since && change.at > *since) count(change.at - *since);
      since = change.at;
      active_[change.activity] += change.by;
      by_group_[change.group][change.activity] += change.by;
    }
    return std::move(totals_);
  }

 private:
  void add_span(Activity activity, std::uint16_t group, Picoseconds begin, Picoseconds end) {
    end = std::min(end, horizon_);
    if (begin >= end) return;
    changes_.push_back({begin, activity, group, 1});
    changes_.push_back({end, activity, group, -1});
  }

  void count(Picoseconds time) {
    const auto first = std::find_if(active_.begin(), active_.end(), [](int n) { return n > 0; });
    if (first == active_.end()) return;
    const auto activity = Activity(first - active_.begin());
    totals_.by_activity[activity] += time;
    if (activity == kTransfer) count_exposed(totals_.transfer, activity, time);
    if (activity == kCollectiveWait) count_exposed(totals_.wait, activity, time);
    for (std::size_t g = 0; g < by_group_.size() && activity < kTransfer; ++g) {
      if (by_group_[g][kTransfer] > 0) totals_.hidden[g] += time;
    }
  }

  /// Adds a time to the first group that has this activity.
  void count_exposed(std::vector<Picoseconds>& to, Activity activity, Picoseconds time) const {
    std::size_t g = 0;
    while (by_group_[g][activity] == 0) ++g;
    to[g] += time;
  }

  Picoseconds horizon_;
  std::vector<Change> changes_;
  std::array<int, kActivities> active_ = {};
  std::vector<std::array<int, kActivities>> by_group_;
  Totals totals_;
};

}  // namespace

StepParts take_apart(std::span<const Interval> critical, std::span<const std::uint16_t> group_of,
                     std::span<const std::string> names, Seconds step_time, bool pipelined) {
  INVARIANT(critical.size() == group_of.size(), "a group for each interval");
  StepParts parts;
  parts.step = to_picoseconds(step_time);
  std::optional<Picoseconds> start;
  for (const Interval& interval : critical) {
    start = start ? std::min(*start, interval.posted) : interval.posted;
  }
  // The next step starts a period later; what still runs then is counted at its beginning.
  Sweep sweep(names.size(), start.value_or(Picoseconds()) + parts.step);
  std::vector<bool> communicated(names.size());
  for (std::size_t i = 0; i < critical.size(); ++i) {
    sweep.add(critical[i], group_of[i], pipelined);
    if (critical[i].kind && communicates(*critical[i].kind)) communicated[group_of[i]] = true;
  }
  const Totals totals = std::move(sweep).run();

  parts.forward = totals.by_activity[kForward];
  parts.recompute = totals.by_activity[kRecompute];
  parts.backward = totals.by_activity[kBackward];
  parts.optimizer = totals.by_activity[kOptimizer];
  parts.bubble = totals.by_activity[kStageWait];
  parts.dispatch = parts.step;
  for (const Picoseconds total : totals.by_activity) parts.dispatch = parts.dispatch - total;
  for (std::size_t g = 0; g < names.size(); ++g) {
    if (!communicated[g]) continue;
    parts.communication.push_back({names[g], totals.wait[g], totals.transfer[g], totals.hidden[g]});
  }
  std::sort(parts.communication.begin(), parts.communication.end(),
            [](const GroupTime& a, const GroupTime& b) { return a.group < b.group; });
  return parts;
}

Breakdown break_down(const StepParts& parts, Seconds step_time) {
  Breakdown breakdown;
  breakdown.forward = parts.forward.seconds();
  breakdown.recompute = parts.recompute.seconds();
  breakdown.backward = parts.backward.seconds();
  breakdown.optimizer = parts.optimizer.seconds();
  Picoseconds exposed;
  for (const GroupTime& group : parts.communication) exposed += group.wait + group.transfer;
  breakdown.exposed_communication = exposed.seconds();
  breakdown.bubble = parts.bubble.seconds();
  // Rounding to picoseconds may leave the rest a hair below zero.
  const Picoseconds counted = parts.step - parts.dispatch;
  breakdown.dispatch = std::max(Seconds(), step_time - counted.seconds());
  return breakdown;
}

Breakdown break_down(std::span<const Interval> critical, Seconds step_time, bool pipelined) {
  const std::vector<std::uint16_t> one(critical.size());
  const std::vector<std::string> names = {""};
  return break_down(take_apart(critical, one, names, step_time, pipelined), step_time);
}

}  // namespace plimsoll
