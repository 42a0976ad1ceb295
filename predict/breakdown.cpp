// Sweeps over the critical rank's ops in order of time.
#include "predict/breakdown.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "graph/op_table.h"

namespace plimsoll {
namespace {

/// Activities by precedence: the first that is active names the instant.
enum Activity : std::uint8_t {
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

/// Returns the timer of a phase that computes.
std::size_t timer_of(Activity computes) {
  return std::size_t(computes == kForward     ? TimedPart::forward
                     : computes == kOptimizer ? TimedPart::optimizer
                                              : TimedPart::backward);
}

/// Returns the timer that counts a communication, and kTimers if none does. Sums of gradients have
/// other timers or overlap with backward (Megatron-LM, megatron/core/distributed/
/// finalize_model_grads.py; DeepSpeed, deepspeed/runtime/engine.py, bwd_allreduce).
std::size_t timer_of(const CriticalOp& op) {
  const bool sums = op.kind == OpKind::all_reduce || op.kind == OpKind::reduce_scatter;
  return sums && op.stream == Stream::data ? kTimers : timer_of(compute_activity(op.phase));
}

/// Returns whether the op copies activations between the device's and the host's memory. Such
/// copies count as communication, with the host.
bool copies_activations(const CriticalOp& op) {
  return is_of_host(op.kind) && op.phase != Phase::optimizer;
}

/// A start (+1) or an end (-1) of an activity.
struct Change {
  Picoseconds at;
  std::uint16_t group;
  Activity activity;
  std::uint8_t timer;
  std::int8_t by;
  /// Whether it is the end of a span that another one like it continues.
  bool ends_with(const Change& next) const {
    return by < 0 && at == next.at && activity == next.activity && group == next.group &&
           timer == next.timer;
  }
};

/// Times by the activity that names them, and for communication by group.
struct Totals {
  explicit Totals(std::size_t groups) : transfer(groups), wait(groups), hidden(groups) {}
  std::array<Picoseconds, kActivities> by_activity = {};
  std::vector<Picoseconds> transfer, wait, hidden;
  std::array<Picoseconds, kTimers + 1> timers = {};
};

class Sweep {
 public:
  Sweep(std::size_t groups, Picoseconds horizon)
      : horizon_(horizon), by_group_(groups), totals_(groups) {}

  void add(std::span<const CriticalOp> ops, bool pipelined) {
    for (const CriticalOp& op : ops) add(op, pipelined);
  }

  /// Adds up all instants.
  Totals run() && {
    // No time passes between changes of one instant, so their order is of no account.
    std::sort(changes_.begin(), changes_.end(),
              [](const Change& a, const Change& b) { return a.at < b.at; });
    std::optional<Picoseconds> since;
    for (const Change& change : changes_) {
      if (since && change.at > *since) count(change.at - *since);
      since = change.at;
      active_[change.activity] += change.by;
      if (change.activity >= kTransfer) communicating_[change.timer] += change.by;
      by_group_[change.group][change.activity] += change.by;
    }
    return std::move(totals_);
  }

 private:
  void add(const CriticalOp& op, bool pipelined) {
    if (communicates(op.kind)) {
      const bool for_stage = row(op.kind).op_class == OpClass::point_to_point ||
                             (pipelined && op.stream == Stream::world);
      const std::size_t timer = for_stage ? kTimers : timer_of(op);
      add_span(for_stage ? kStageWait : kCollectiveWait, op, timer, op.posted, op.begin);
      add_span(kTransfer, op, timer, op.begin, op.end);
    } else if (copies_activations(op)) {
      add_span(kTransfer, op, timer_of(op), op.begin, op.end);
    } else {
      add_span(compute_activity(op.phase), op, kTimers, op.begin, op.end);
    }
  }

  void add_span(Activity activity, const CriticalOp& op, std::size_t timer, Picoseconds begin,
                Picoseconds end) {
    end = std::min(end, horizon_);
    if (begin >= end) return;
    Change change{begin, op.group, activity, std::uint8_t(timer), 1};
    if (!changes_.empty() && changes_.back().ends_with(change)) {
      changes_.back().at = end;
      return;
    }
    changes_.push_back(change);
    change.at = end;
    change.by = -1;
    changes_.push_back(change);
  }

  void count(Picoseconds time) {
    const auto first = std::find_if(active_.begin(), active_.end(), [](int n) { return n > 0; });
    const auto activity = Activity(first - active_.begin());
    count_timer(activity, time);
    if (activity == kActivities) return;
    totals_.by_activity[activity] += time;
    if (activity == kTransfer) count_exposed(totals_.transfer, activity, time);
    if (activity == kCollectiveWait) count_exposed(totals_.wait, activity, time);
    for (std::size_t g = 0; g < by_group_.size() && activity < kTransfer; ++g) {
      if (by_group_[g][kTransfer] > 0) totals_.hidden[g] += time;
    }
  }

  void count_timer(Activity activity, Picoseconds time) {
    if (activity == kActivities) {
      idle_ += time;
      return;
    }
    std::size_t timer = 0;
    if (activity >= kTransfer) {
      while (timer < kTimers && communicating_[timer] == 0) ++timer;
    } else {
      timer = timer_of(activity);
    }
    totals_.timers[timer] += time;
    if (timer < kTimers) totals_.timers[timer] += std::exchange(idle_, Picoseconds());
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
  std::array<int, kTimers + 1> communicating_ = {};  ///< by timer
  Picoseconds idle_;                                 ///< since the last op that a timer counts
  std::vector<std::array<int, kActivities>> by_group_;
  Totals totals_;
};

}  // namespace

StepParts take_apart(std::span<const CriticalOp> critical, std::span<const std::string> names,
                     Seconds step_time, bool pipelined) {
  StepParts parts;
  parts.step = to_picoseconds(step_time);
  std::optional<Picoseconds> start;
  for (const CriticalOp& op : critical) start = start ? std::min(*start, op.posted) : op.posted;
  // The next step starts a period later; what still runs then is counted at its beginning.
  Sweep sweep(names.size(), start.value_or(Picoseconds()) + parts.step);
  sweep.add(critical, pipelined);
  std::vector<bool> communicated(names.size());
  for (const CriticalOp& op : critical) {
    if (communicates(op.kind) || copies_activations(op)) communicated[op.group] = true;
  }
  const Totals totals = std::move(sweep).run();

  parts.forward = totals.by_activity[kForward];
  parts.recompute = totals.by_activity[kRecompute];
  parts.backward = totals.by_activity[kBackward];
  parts.optimizer = totals.by_activity[kOptimizer];
  parts.bubble = totals.by_activity[kStageWait];
  std::copy_n(totals.timers.begin(), kTimers, parts.timers.begin());
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

Picoseconds compute_of(const StepParts& parts) {
  return parts.forward + parts.recompute + parts.backward + parts.optimizer;
}

Picoseconds exposed_of(const StepParts& parts) {
  Picoseconds exposed;
  for (const GroupTime& time : parts.communication) exposed += time.wait + time.transfer;
  return exposed;
}

Seconds time_of(TimedPart part, const StepParts& parts) {
  if (part == TimedPart::compute) return compute_of(parts).seconds();
  if (part == TimedPart::communication) return (exposed_of(parts) + parts.bubble).seconds();
  return parts.timers[std::size_t(part)].seconds();
}

Breakdown break_down(const StepParts& parts, Seconds step_time) {
  Breakdown breakdown;
  breakdown.forward = parts.forward.seconds();
  breakdown.recompute = parts.recompute.seconds();
  breakdown.backward = parts.backward.seconds();
  breakdown.optimizer = parts.optimizer.seconds();
  breakdown.exposed_communication = exposed_of(parts).seconds();
  breakdown.bubble = parts.bubble.seconds();
  // Rounding to picoseconds may leave the rest a hair below zero.
  const Picoseconds counted = parts.step - parts.dispatch;
  breakdown.dispatch = std::max(Seconds(), step_time - counted.seconds());
  return breakdown;
}

}  // namespace plimsoll
