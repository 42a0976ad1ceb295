// Runs ranks that are processes. A change of speed first settles what was done until then. The ends
// of ops are events of one heap; an event whose version is out of date no longer counts.
#include "simulator/engine/process_engine.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"

namespace plimsoll {
namespace {

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
class ProcessRun : CoreRun {
 public:
  ProcessRun(const CoreOps& ops, std::span<const Picoseconds> starts)
      : CoreRun(ops, starts), rendezvous_(ops.rendezvous.size()), work_(ops.ranks()) {
    for (std::uint32_t rank = 0; rank < hosts_.size(); ++rank)
      push({starts[rank], EventKind::proceed, rank, 0});
  }

  EngineResult run() {
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      const Event event = heap_.back();
      heap_.pop_back();
      now_ = event.time;
      handle(event);
    }
    return result();
  }

 private:
  /// The work of a rank that changes speed.
  struct Work {
    std::uint32_t running = kNone;  // a local op that rendezvous may slow
    Activity local;
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
        if (work_[event.subject].local.version == event.version) end_work(event.subject);
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
        host.next();
        return;
      }
      times_[i].posted = times_[i].begin = host.clock + op.dispatch;
      if (work_[rank].open > 0) {
        if (host.clock > now_) {  // the host has just woken up
          push({host.clock, EventKind::proceed, rank, 0});
          return;
        }
        begin_work(rank, i);
        return;
      }
      // No rendezvous of this rank is under way, and none can be before the rank posts.
      host.clock = times_[i].begin + op.duration;
      finish_local(i, host.clock);
      host.next();
    }
  }

  void begin_work(std::uint32_t rank, std::uint32_t i) {
    Work& work = work_[rank];
    const CoreOps::Op& op = ops_.ops[i];
    work.running = i;
    work.local.left = amount_of(op.dispatch + op.duration);
    work.local.since = now_;
    work.local.speed = 0;
    refresh(rank);
  }

  void end_work(std::uint32_t rank) {
    Host& host = hosts_[rank];
    const std::uint32_t i = std::exchange(work_[rank].running, kNone);
    ++work_[rank].local.version;
    host.clock = now_;
    host.next();
    finish_local(i, now_);
    proceed(rank);
    if (work_[rank].running == kNone) refresh(rank);  // a host that waits slows nothing
  }

  void post(std::uint32_t i) {
    const CoreOps::Op& op = ops_.ops[i];
    times_[i].posted = now_;
    states_[i] = State::posted;
    ++work_[op.rank].open;
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
      work_[ops_.ops[op].rank].moving.push_back(op);
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
      Work& work = work_[ops_.ops[op].rank];
      std::erase(work.moving, op);
      --work.open;
    }
    for (std::uint32_t op : state.arrivals) finish(op, now_, free);
    for (std::uint32_t op : state.arrivals) {
      const std::uint32_t after = ops_.ops[op].after;
      if (after != kNone && states_[after] != State::open) arrive(after);
    }
    refresh_ranks(state);
    for (std::uint32_t rank : free) proceed(rank);
  }

  /// Ends a local op, for which no host can be waiting.
  void finish_local(std::uint32_t op, Picoseconds end) {
    std::vector<std::uint32_t> free;
    finish(op, end, free);
    INVARIANT(free.empty(), "hosts wait for their own ops");
  }

  /// Sets the speeds of what is under way on this rank, after something there began or ended.
  void refresh(std::uint32_t rank) {
    Work& work = work_[rank];
    if (work.running != kNone) {
      const auto kind = std::size_t(ops_.ops[work.running].work);
      std::int64_t speed = kFullSpeed;
      for (std::uint32_t op : work.moving) {
        speed = std::min(speed, slowdown_of(op).compute[kind]);
      }
      change(work.local, speed, EventKind::host, rank);
    }
    for (std::uint32_t op : work.moving) set_speed(ops_.ops[op].rendezvous);
  }

  void set_speed(std::uint32_t rendezvous) {
    RendezvousState& state = rendezvous_[rendezvous];
    const MutualSlowdown& slowdown = ops_.rendezvous[rendezvous].slowdown;
    std::int64_t speed = kFullSpeed, sharing = 1;
    for (std::uint32_t i : state.arrivals) {
      const CoreOps::Op& op = ops_.ops[i];
      const Work& work = work_[op.rank];
      if (work.running != kNone) {
        const auto kind = std::size_t(ops_.ops[work.running].work);
        speed = std::min(speed, slowdown.communication[kind]);
      }
      std::int64_t senders = 0, receivers = 0;
      for (std::uint32_t other : work.moving) {
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

  std::vector<RendezvousState> rendezvous_;
  std::vector<Work> work_;  // by rank
  std::vector<Event> heap_;
  Picoseconds now_;
};

}  // namespace

EngineResult run_processes(const CoreOps& ops, std::span<const Picoseconds> starts) {
  return ProcessRun(ops, starts).run();
}

}  // namespace plimsoll
