// Runs ranks that are processes. A change of speed first settles what was done until then. The ends
// of ops are events of one heap; an event whose version is out of date no longer counts.
#include "simulator/engine/process_engine.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t kNone = CoreOps::kNone;

/// Picoseconds times kFullSpeed: beyond 64 bits.
__extension__ using Amount = __int128;

Amount amount_of(Picoseconds time) { return Amount(time.count()) * kFullSpeed; }

/// Local work or a rendezvous, done at a speed that changes.
struct Activity {
  Amount left = 0;
  std::int64_t speed = 0;  ///< 0: not set yet
  Picoseconds since;       ///< `left` is as of then
  std::uint32_t version = 0;

  void settle(Picoseconds now) {
    left -= Amount((now - since).count()) * speed;
    since = now;
  }
  bool over() const { return left <= 0; }
  Picoseconds end() const {
    return over() ? since : since + Picoseconds(std::int64_t((left + speed - 1) / speed));
  }
};

enum class EventKind : std::uint32_t { post, rendezvous, host, proceed };

struct Event {
  Picoseconds time;
  EventKind kind;
  std::uint32_t subject;  // op, rendezvous or rank
  std::uint32_t version;

  // Reversed, for a heap whose top is the earliest.
  friend bool operator<(const Event& a, const Event& b) {
    if (a.time != b.time) return a.time > b.time;
    if (a.kind != b.kind) return a.kind > b.kind;
    if (a.subject != b.subject) return a.subject > b.subject;
    return a.version > b.version;
  }
};

/// The state of one run.
class ProcessRun {
 public:
  ProcessRun(const CoreOps& ops, std::span<const Picoseconds> starts)
      : ops_(ops),
        times_(ops.ops.size()),
        states_(ops.ops.size()),
        waiter_(ops.ops.size(), kNone),
        rendezvous_(ops.rendezvous.size()),
        hosts_(ops.ranks()) {
    for (std::uint32_t rank = 0; rank < hosts_.size(); ++rank) {
      hosts_[rank].next_op = ops.first_op[rank];
      hosts_[rank].clock = starts[rank];
      push({starts[rank], EventKind::proceed, rank, 0});
    }
  }

  EngineResult run() {
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      const Event event = heap_.back();
      heap_.pop_back();
      now_ = event.time;
      handle(event);
    }
    std::vector<std::uint32_t> next;
    std::vector<Picoseconds> clocks;
    for (const Host& host : hosts_) {
      next.push_back(host.next_op);
      clocks.push_back(host.clock);
    }
    return ops_.result(times_, states_, next, clocks);
  }

 private:
  struct Host {
    Picoseconds clock;  // when it is free
    std::uint32_t next_op = 0;
    std::uint32_t waits_done = 0;
    std::uint32_t next_waiter = kNone;  // list of the hosts blocked on one op
    std::uint32_t running = kNone;      // a local op that rendezvous may slow
    Activity work;
    std::uint32_t open = 0;             // rendezvous that were posted and have not ended
    std::vector<std::uint32_t> moving;  // ops of rendezvous that are under way
  };
  struct RendezvousState {
    std::vector<std::uint32_t> arrivals;  // ops
    bool latency = true;                  // the first part of its duration
    Activity transfer;
  };

  void handle(const Event& event) {
    switch (event.kind) {
      case EventKind::post:
        post(event.subject);
        break;
      case EventKind::rendezvous:
        if (rendezvous_[event.subject].transfer.version == event.version) advance(event.subject);
        break;
      case EventKind::host:
        if (hosts_[event.subject].work.version == event.version) end_work(event.subject);
        break;
      case EventKind::proceed:
        proceed(event.subject);
        break;
    }
  }

  /// Works through the ops of a host that is free now, until it waits, posts or is through.
  void proceed(std::uint32_t rank) {
    Host& host = hosts_[rank];
    while (host.next_op < ops_.first_op[rank + 1]) {
      const std::uint32_t i = host.next_op;
      const CoreOps::Op& op = ops_.ops[i];
      if (!wait_for_all(rank, op)) return;
      if (op.rendezvous != kNone) {
        host.clock += op.dispatch;
        push({host.clock, EventKind::post, i, 0});
        next(host);
        return;
      }
      times_[i].posted = times_[i].begin = host.clock + op.dispatch;
      if (host.open > 0) {
        if (host.clock > now_) {  // the host has just woken up
          push({host.clock, EventKind::proceed, rank, 0});
          return;
        }
        begin_work(rank, i);
        return;
      }
      // No rendezvous of this rank is under way, and none can be before the rank posts.
      host.clock = times_[i].begin + op.duration;
      finish(i, host.clock);
      next(host);
    }
  }

  static void next(Host& host) {
    ++host.next_op;
    host.waits_done = 0;
  }

  bool wait_for_all(std::uint32_t rank, const CoreOps::Op& op) {
    Host& host = hosts_[rank];
    for (; op.first_wait + host.waits_done < op.last_wait; ++host.waits_done) {
      const std::uint32_t awaited = ops_.waits[op.first_wait + host.waits_done];
      if (!has_ended(awaited)) {
        host.next_waiter = waiter_[awaited];
        waiter_[awaited] = rank;
        return false;
      }
      const Picoseconds end = times_[awaited].end;
      if (end <= host.clock) continue;
      const bool slept = end - host.clock >= ops_.wake_up.after;
      host.clock = slept ? end + ops_.wake_up.delay : end;
    }
    return true;
  }

  void begin_work(std::uint32_t rank, std::uint32_t i) {
    Host& host = hosts_[rank];
    const CoreOps::Op& op = ops_.ops[i];
    host.running = i;
    host.work.left = amount_of(op.dispatch + op.duration);
    host.work.since = now_;
    host.work.speed = 0;
    refresh(rank);
  }

  void end_work(std::uint32_t rank) {
    Host& host = hosts_[rank];
    const std::uint32_t i = std::exchange(host.running, kNone);
    ++host.work.version;
    host.clock = now_;
    next(host);
    finish(i, now_);
    proceed(rank);
    if (host.running == kNone) refresh(rank);  // a host that waits slows nothing
  }

  void post(std::uint32_t i) {
    const CoreOps::Op& op = ops_.ops[i];
    times_[i].posted = now_;
    states_[i] = CoreOps::State::posted;
    ++hosts_[op.rank].open;
    if (op.before == kNone || has_ended(op.before)) arrive(i);
    proceed(op.rank);
  }

  void arrive(std::uint32_t i) {
    const std::uint32_t rendezvous = ops_.ops[i].rendezvous;
    RendezvousState& state = rendezvous_[rendezvous];
    state.arrivals.push_back(i);
    const CoreOps::Rendezvous& known = ops_.rendezvous[rendezvous];
    if (state.arrivals.size() < known.participants) return;
    state.transfer.left = amount_of(std::min(known.slowdown.latency, known.duration));
    state.transfer.since = now_;
    for (std::uint32_t op : state.arrivals) {
      times_[op].begin = now_;
      hosts_[ops_.ops[op].rank].moving.push_back(op);
    }
    refresh_ranks(state);
  }

  void refresh_ranks(const RendezvousState& state) {
    for (std::uint32_t op : state.arrivals) refresh(ops_.ops[op].rank);
  }

  /// Goes on after the latency of a rendezvous, or ends the rendezvous.
  void advance(std::uint32_t rendezvous) {
    RendezvousState& state = rendezvous_[rendezvous];
    const CoreOps::Rendezvous& known = ops_.rendezvous[rendezvous];
    if (state.latency && known.duration > known.slowdown.latency) {
      state.latency = false;
      state.transfer.left = amount_of(known.duration - known.slowdown.latency);
      state.transfer.since = now_;
      state.transfer.speed = 0;
      set_speed(rendezvous);
      return;
    }
    ++state.transfer.version;
    std::vector<std::uint32_t> free;
    for (std::uint32_t op : state.arrivals) {
      Host& host = hosts_[ops_.ops[op].rank];
      std::erase(host.moving, op);
      --host.open;
    }
    for (std::uint32_t op : state.arrivals) finish(op, now_, &free);
    for (std::uint32_t op : state.arrivals) {
      const std::uint32_t after = ops_.ops[op].after;
      if (after != kNone && states_[after] != CoreOps::State::open) arrive(after);
    }
    refresh_ranks(state);
    for (std::uint32_t rank : free) proceed(rank);
  }

  /// Ends the op. Hosts that waited for it go into `free`, which is null where no host can be
  /// waiting.
  void finish(std::uint32_t op, Picoseconds end, std::vector<std::uint32_t>* free = nullptr) {
    times_[op].end = end;
    states_[op] = CoreOps::State::ended;
    for (std::uint32_t rank = waiter_[op]; rank != kNone; rank = hosts_[rank].next_waiter) {
      INVARIANT(free != nullptr, "hosts wait for their own ops");
      free->push_back(rank);
    }
    waiter_[op] = kNone;
  }

  bool has_ended(std::uint32_t op) const { return states_[op] == CoreOps::State::ended; }

  /// Sets the speeds of what is under way on this rank, after something there began or ended.
  void refresh(std::uint32_t rank) {
    Host& host = hosts_[rank];
    if (host.running != kNone) {
      const auto work = std::size_t(ops_.ops[host.running].work);
      std::int64_t speed = kFullSpeed;
      for (std::uint32_t op : host.moving) {
        speed = std::min(speed, slowdown_of(op).compute[work]);
      }
      change(host.work, speed, EventKind::host, rank);
    }
    for (std::uint32_t op : host.moving) set_speed(ops_.ops[op].rendezvous);
  }

  void set_speed(std::uint32_t rendezvous) {
    RendezvousState& state = rendezvous_[rendezvous];
    const MutualSlowdown& slowdown = ops_.rendezvous[rendezvous].slowdown;
    std::int64_t speed = kFullSpeed, sharing = 1;
    for (std::uint32_t i : state.arrivals) {
      const CoreOps::Op& op = ops_.ops[i];
      const Host& host = hosts_[op.rank];
      if (host.running != kNone) {
        const auto work = std::size_t(ops_.ops[host.running].work);
        speed = std::min(speed, slowdown.communication[work]);
      }
      std::int64_t senders = 0, receivers = 0;
      for (std::uint32_t other : host.moving) {
        senders += op.sends && ops_.ops[other].sends;
        receivers += op.receives && ops_.ops[other].receives;
      }
      sharing = std::max({sharing, senders, receivers});
    }
    if (!state.latency) speed = std::max(std::int64_t{1}, speed / sharing);
    change(state.transfer, speed, EventKind::rendezvous, rendezvous);
  }

  void change(Activity& activity, std::int64_t speed, EventKind kind, std::uint32_t subject) {
    if (activity.speed == speed) return;
    activity.settle(now_);
    activity.speed = speed;
    push({activity.end(), kind, subject, ++activity.version});
  }

  const MutualSlowdown& slowdown_of(std::uint32_t op) const {
    return ops_.rendezvous[ops_.ops[op].rendezvous].slowdown;
  }

  void push(const Event& event) {
    heap_.push_back(event);
    std::push_heap(heap_.begin(), heap_.end());
  }

  const CoreOps& ops_;
  std::vector<OpTimes> times_;
  std::vector<CoreOps::State> states_;
  std::vector<std::uint32_t> waiter_;  // by op: head of the list of blocked hosts
  std::vector<RendezvousState> rendezvous_;
  std::vector<Host> hosts_;  // by rank
  std::vector<Event> heap_;
  Picoseconds now_;
};

}  // namespace

EngineResult run_processes(const CoreOps& ops, std::span<const Picoseconds> starts) {
  return ProcessRun(ops, starts).run();
}

}  // namespace plimsoll
