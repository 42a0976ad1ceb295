// A time that is not known yet is -1. All that happens at one picosecond is worked out again and
// again until nothing more happens, and only then does time go on.
#include "tests/simulator/clock_engine.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "tests/simulator/fair_speeds.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kLongest = 1'000'000;

/// An op with what is known of it.
struct ClockOp {
  TimedOp given;
  std::size_t rank = 0, meeting = 0;
  std::int64_t issued = -1, posted = -1, begin = -1, end = -1;
  bool arrived = false, sends = false, receives = false;
};

/// The ops of one rendezvous, or one op that meets no other.
struct Meeting {
  std::vector<ClockOp*> ops;
  std::int64_t duration = 0, latency = 0;
  MutualSlowdown slowdown;
  LinkFlow flow;
  std::int64_t flows_from = -1;  // when it begins to use its links
  bool in_latency = true;        // of Execution::processes
  std::int64_t left = 0;         // picoseconds times kFullSpeed

  std::int64_t begin() const { return ops.front()->begin; }
  std::int64_t end() const { return ops.front()->end; }
};

struct Host {
  std::int64_t free = 0;       // when it turns to what is next
  std::size_t next = 0;        // of its ops
  std::size_t waits_done = 0;  // of that op
  bool has_waited = false;     // for the op's host_waits
  std::int64_t posts_at = -1;  // the op, a rendezvous that it has dispatched
  std::int64_t left = -1;      // of the local op that it runs; -1: it runs none
};

/// The ops of ranks, who meets whom, and the result: alike for every rule.
class Clock {
 public:
  Clock(std::span<const std::vector<TimedOp>> ranks, std::span<const Picoseconds> starts,
        std::span<const MutualSlowdown> slowdowns)
      : ops_(ranks.size()), hosts_(ranks.size()) {
    std::map<std::uint64_t, std::size_t> by_number;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      hosts_[rank].free = starts[rank].count();
      ops_[rank].resize(ranks[rank].size());
      for (std::size_t i = 0; i < ranks[rank].size(); ++i) {
        ClockOp& op = ops_[rank][i];
        op.given = ranks[rank][i];
        op.rank = rank;
        op.meeting = meetings_.size();
        if (op.given.rendezvous)
          op.meeting = by_number.emplace(*op.given.rendezvous, op.meeting).first->second;
        if (op.meeting == meetings_.size()) meetings_.emplace_back();
        join(meetings_[op.meeting], op);
        if (op.given.rendezvous && !slowdowns.empty())
          slow(meetings_[op.meeting], op, slowdowns[op.given.slowdown]);
      }
    }
  }

 protected:
  bool ended(const ClockOp& op) const { return op.end >= 0 && op.end <= now_; }
  bool all_ended(std::size_t rank, const std::vector<std::uint32_t>& waits) const {
    return std::all_of(waits.begin(), waits.end(),
                       [&](std::uint32_t wait) { return ended(ops_[rank][wait]); });
  }
  bool all_arrived(const Meeting& meeting) const {
    return std::all_of(meeting.ops.begin(), meeting.ops.end(),
                       [](const ClockOp* op) { return op->arrived; });
  }
  bool is_over() const {
    for (std::size_t rank = 0; rank < ops_.size(); ++rank) {
      if (hosts_[rank].next < ops_[rank].size() || hosts_[rank].posts_at >= 0) return false;
      for (const ClockOp& op : ops_[rank])
        if (!ended(op)) return false;
    }
    return true;
  }
  void go_on() {
    if (++now_ == kLongest) throw std::runtime_error("ops wait for each other");
  }
  static void end_all(Meeting& meeting, std::int64_t end) {
    for (ClockOp* op : meeting.ops) op->end = end;
  }

  EngineResult result() const {
    EngineResult result;
    for (std::size_t rank = 0; rank < ops_.size(); ++rank) {
      std::int64_t end = hosts_[rank].free;
      std::vector<OpTimes>& times = result.times.emplace_back();
      for (const ClockOp& op : ops_[rank]) {
        times.push_back({Picoseconds(op.posted), Picoseconds(op.begin), Picoseconds(op.end)});
        end = std::max(end, op.end);
      }
      result.host_end.emplace_back(hosts_[rank].free);
      result.rank_end.emplace_back(end);
    }
    return result;
  }

  std::int64_t now_ = 0;
  std::vector<std::vector<ClockOp>> ops_;  // by rank
  std::vector<Meeting> meetings_;
  std::vector<Host> hosts_;

 private:
  static void join(Meeting& meeting, ClockOp& op) {
    meeting.ops.push_back(&op);
    meeting.duration = std::max(meeting.duration, op.given.duration.count());
    meeting.latency = std::max(meeting.latency, op.given.link_use.latency.count());
    for (std::uint32_t bit = 0; bit < kMostLinks; ++bit) {
      if (op.given.link_use.links >> bit & 1)
        meeting.flow.links.push_back(std::uint32_t(op.rank) * kMostLinks + bit);
    }
  }
  static void slow(Meeting& meeting, ClockOp& op, const MutualSlowdown& own) {
    MutualSlowdown& all = meeting.slowdown;
    for (std::size_t work = 0; work < kLocalWorks; ++work) {
      all.communication[work] = std::min(all.communication[work], own.communication[work]);
      all.compute[work] = std::min(all.compute[work], own.compute[work]);
    }
    all.latency = std::max(all.latency, own.latency);
    op.sends = own.sends;
    op.receives = own.receives;
  }
};

/// Execution::streams.
class StreamClock : public Clock {
 public:
  using Clock::Clock;

  EngineResult run() {
    for (; !is_over(); go_on()) {
      while (hosts_issue() || ops_begin() || flows_change()) continue;
      std::vector<LinkFlow> flows;
      for (const Meeting& meeting : meetings_) flows.push_back(meeting.flow);
      const auto speeds = fair_speeds(flows, hosts_.size() * kMostLinks);
      for (std::size_t m = 0; m < meetings_.size(); ++m) meetings_[m].left -= speeds[m];
    }
    return result();
  }

 private:
  bool hosts_issue() {
    bool changed = false;
    for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
      Host& host = hosts_[rank];
      if (host.next == ops_[rank].size() || host.free > now_) continue;
      ClockOp& op = ops_[rank][host.next];
      if (!op.given.host_waits.empty() && !host.has_waited) {
        if (!all_ended(rank, op.given.host_waits)) continue;
        host.free = now_ + op.given.host_wait.count();
        host.has_waited = true;
      } else {
        op.issued = host.free += op.given.dispatch.count();
        ++host.next;
        host.has_waited = false;
      }
      changed = true;
    }
    return changed;
  }

  /// Whether the op before it on its stream has ended, and all that it waits for.
  bool is_ready(std::size_t rank, std::size_t i) const {
    const ClockOp& op = ops_[rank][i];
    if (op.issued < 0 || op.issued > now_ || !all_ended(rank, op.given.waits)) return false;
    for (std::size_t before = 0; before < i; ++before) {
      const ClockOp& other = ops_[rank][before];
      if (other.given.stream == op.given.stream && !ended(other)) return false;
    }
    return true;
  }

  bool ops_begin() {
    bool changed = false;
    for (std::size_t rank = 0; rank < ops_.size(); ++rank) {
      for (std::size_t i = 0; i < ops_[rank].size(); ++i) {
        ClockOp& op = ops_[rank][i];
        if (op.arrived || !is_ready(rank, i)) continue;
        op.arrived = changed = true;
        op.posted = now_;
        Meeting& meeting = meetings_[op.meeting];
        if (!all_arrived(meeting)) continue;
        for (ClockOp* one : meeting.ops) one->begin = now_;
        if (meeting.flow.links.empty()) {
          end_all(meeting, now_ + meeting.duration);
        } else {
          meeting.latency = std::min(meeting.latency, meeting.duration);
          meeting.flows_from = now_ + meeting.latency;
        }
      }
    }
    return changed;
  }

  bool flows_change() {
    bool changed = false;
    for (Meeting& meeting : meetings_) {
      if (meeting.flows_from == now_) {
        meeting.left = (meeting.duration - meeting.latency) * kFullSpeed;
        meeting.flow.under_way = changed = true;
        meeting.flows_from = -1;
      }
      if (meeting.flow.under_way && meeting.left <= 0) {
        meeting.flow.under_way = false;
        changed = true;
        end_all(meeting, now_);
      }
    }
    return changed;
  }
};

/// Threads and processes: hosts run ops themselves, and a stream holds its rendezvous alone.
class CoreClock : public Clock {
 public:
  CoreClock(std::span<const std::vector<TimedOp>> ranks, std::span<const Picoseconds> starts,
            const WakeUpCost& wake_up, std::span<const MutualSlowdown> slowdowns)
      : Clock(ranks, starts, slowdowns), wake_up_(wake_up) {}

 protected:
  /// The rendezvous before op i on its stream; none: null.
  const ClockOp* before(std::size_t rank, std::size_t i) const {
    const ClockOp* last = nullptr;
    for (std::size_t k = 0; k < i; ++k) {
      const ClockOp& other = ops_[rank][k];
      if (other.given.rendezvous && other.given.stream == ops_[rank][i].given.stream) last = &other;
    }
    return last;
  }

  bool hosts_post() {
    bool changed = false;
    for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
      if (hosts_[rank].posts_at != now_) continue;
      ops_[rank][hosts_[rank].next++].posted = now_;
      hosts_[rank].posts_at = -1;
      hosts_[rank].waits_done = 0;
      changed = true;
    }
    return changed;
  }

  /// Returns whether the host is at its next op, after all of the op's waits.
  bool turns_to_next(std::size_t rank) {
    Host& host = hosts_[rank];
    if (host.next == ops_[rank].size() || host.posts_at >= 0 || host.left >= 0) return false;
    const std::vector<std::uint32_t>& waits = ops_[rank][host.next].given.waits;
    for (; host.waits_done < waits.size(); ++host.waits_done) {
      const ClockOp& awaited = ops_[rank][waits[host.waits_done]];
      if (host.free > now_ || !ended(awaited)) return false;
      if (awaited.end <= host.free) continue;
      const bool slept = awaited.end - host.free >= wake_up_.after.count();
      host.free = awaited.end + (slept ? wake_up_.delay.count() : 0);
    }
    return host.free <= now_;
  }

  /// Calls begin(meeting) where a rendezvous begins.
  template <class Begin>
  bool rendezvous_begin(Begin begin) {
    bool changed = false;
    for (std::size_t rank = 0; rank < ops_.size(); ++rank) {
      for (std::size_t i = 0; i < ops_[rank].size(); ++i) {
        ClockOp& op = ops_[rank][i];
        if (!op.given.rendezvous || op.arrived || op.posted < 0) continue;
        const ClockOp* last = before(rank, i);
        if (last != nullptr && !ended(*last)) continue;
        op.arrived = changed = true;
        Meeting& meeting = meetings_[op.meeting];
        if (!all_arrived(meeting)) continue;
        for (ClockOp* one : meeting.ops) one->begin = now_;
        begin(meeting);
      }
    }
    return changed;
  }

  WakeUpCost wake_up_;
};

/// Execution::threads.
class ThreadClock : public CoreClock {
 public:
  using CoreClock::CoreClock;

  EngineResult run() {
    const auto begin = [&](Meeting& meeting) {
      end_all(meeting, now_ + meeting.duration);
      charge(meeting, now_, now_ + meeting.duration);
    };
    for (; !is_over(); go_on()) {
      // Hosts that tie share the work of a rendezvous: all of them post before one goes on.
      while (hosts_post() || rendezvous_begin(begin)) continue;
      while (hosts_go_on()) continue;
    }
    return result();
  }

 private:
  /// The hosts whose posts were the last to arrive are busy until `end`. Where an earlier
  /// rendezvous held a post back, those that did the work of that one are.
  void charge(const Meeting& meeting, std::int64_t begin, std::int64_t end) {
    for (const ClockOp* op : meeting.ops) {
      Host& host = hosts_[op->rank];
      if (op->posted == begin) {
        host.free = std::max(host.free, end);
        continue;
      }
      const ClockOp* last = before(op->rank, std::size_t(op - ops_[op->rank].data()));
      if (last != nullptr && last->end == begin) charge(meetings_[last->meeting], last->begin, end);
    }
  }

  bool hosts_go_on() {
    bool changed = false;
    for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
      if (!turns_to_next(rank)) continue;
      Host& host = hosts_[rank];
      ClockOp& op = ops_[rank][host.next];
      host.free += op.given.dispatch.count();
      changed = true;
      if (op.given.rendezvous) {
        host.posts_at = host.free;
        continue;
      }
      op.posted = op.begin = host.free;
      op.end = host.free += op.given.duration.count();
      ++host.next;
      host.waits_done = 0;
    }
    return changed;
  }
};

/// Execution::processes.
class ProcessClock : public CoreClock {
 public:
  using CoreClock::CoreClock;

  EngineResult run() {
    const auto begin = [](Meeting& meeting) {
      meeting.left = std::min(meeting.slowdown.latency.count(), meeting.duration) * kFullSpeed;
    };
    for (; !is_over(); go_on()) {
      while (hosts_post() || rendezvous_begin(begin) || rendezvous_end() || hosts_go_on()) continue;
      let_time_pass();
    }
    return result();
  }

 private:
  static bool is_under_way(const Meeting& meeting) {
    return meeting.ops.front()->given.rendezvous && meeting.begin() >= 0 && meeting.end() < 0;
  }

  bool rendezvous_end() {
    bool changed = false;
    for (Meeting& meeting : meetings_) {
      if (!is_under_way(meeting) || meeting.left > 0) continue;
      changed = true;
      const std::int64_t transfer = meeting.duration - meeting.slowdown.latency.count();
      if (meeting.in_latency && transfer > 0) {
        meeting.in_latency = false;
        meeting.left = transfer * kFullSpeed;
      } else {
        end_all(meeting, now_);
      }
    }
    return changed;
  }

  bool hosts_go_on() {
    bool changed = false;
    for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
      Host& host = hosts_[rank];
      if (host.left >= 0 || turns_to_next(rank)) changed = goes_on(rank) || changed;
    }
    return changed;
  }

  bool goes_on(std::size_t rank) {
    Host& host = hosts_[rank];
    ClockOp& op = ops_[rank][host.next];
    if (op.given.rendezvous) {
      host.posts_at = host.free += op.given.dispatch.count();
      return true;
    }
    if (host.left < 0) {
      op.posted = op.begin = now_ + op.given.dispatch.count();
      host.left = (op.given.dispatch + op.given.duration).count() * kFullSpeed;
      return true;
    }
    if (host.left > 0) return false;
    op.end = host.free = now_;
    host.left = -1;
    ++host.next;
    host.waits_done = 0;
    return true;
  }

  /// Returns how many rendezvous of the op's rank share a link with it, with itself.
  std::int64_t sharing(const ClockOp& op) const {
    std::int64_t senders = 0, receivers = 0;
    for (const Meeting& other : meetings_) {
      for (const ClockOp* one : other.ops) {
        if (!is_under_way(other) || one->rank != op.rank) continue;
        senders += op.sends && one->sends ? 1 : 0;
        receivers += op.receives && one->receives ? 1 : 0;
      }
    }
    return std::max<std::int64_t>({1, senders, receivers});
  }

  std::int64_t speed_of(const Meeting& meeting) const {
    std::int64_t speed = kFullSpeed, shared_by = 1;
    for (const ClockOp* op : meeting.ops) {
      const Host& host = hosts_[op->rank];
      if (host.left >= 0) {
        const LocalWork work = ops_[op->rank][host.next].given.work;
        speed = std::min(speed, meeting.slowdown.communication[std::size_t(work)]);
      }
      shared_by = std::max(shared_by, sharing(*op));
    }
    return meeting.in_latency ? speed : std::max<std::int64_t>(1, speed / shared_by);
  }

  std::int64_t speed_of_host(std::size_t rank) const {
    std::int64_t speed = kFullSpeed;
    const LocalWork work = ops_[rank][hosts_[rank].next].given.work;
    for (const Meeting& meeting : meetings_) {
      for (const ClockOp* op : meeting.ops) {
        if (op->rank == rank && is_under_way(meeting))
          speed = std::min(speed, meeting.slowdown.compute[std::size_t(work)]);
      }
    }
    return speed;
  }

  void let_time_pass() {
    std::vector<std::int64_t> speeds;
    for (const Meeting& meeting : meetings_)
      speeds.push_back(is_under_way(meeting) ? speed_of(meeting) : 0);
    for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
      std::int64_t& left = hosts_[rank].left;
      if (left > 0) left = std::max<std::int64_t>(0, left - speed_of_host(rank));
    }
    for (std::size_t m = 0; m < meetings_.size(); ++m) meetings_[m].left -= speeds[m];
  }
};

}  // namespace

EngineResult run_by_the_clock(std::span<const std::vector<TimedOp>> ranks, Execution execution,
                              std::span<const Picoseconds> starts, const WakeUpCost& wake_up,
                              std::span<const MutualSlowdown> slowdowns) {
  if (execution == Execution::streams) return StreamClock(ranks, starts, {}).run();
  if (execution == Execution::threads) return ThreadClock(ranks, starts, wake_up, {}).run();
  return ProcessClock(ranks, starts, wake_up, slowdowns).run();
}

}  // namespace plimsoll
