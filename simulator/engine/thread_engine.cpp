// Runs ranks that are threads. Hosts run ahead through local ops. Arrivals at rendezvous go through
// one heap in the order of time, because the last arrival decides which core does the work.
#include "simulator/engine/thread_engine.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace plimsoll {
namespace {

/// At equal times all arrivals come before any host goes on: hosts that tie are charged together.
enum class EventPhase : std::uint32_t { post, arrive, proceed };

struct Event {
  Picoseconds time;
  EventPhase phase;
  std::uint32_t subject;  // the rank that proceeds, or the op

  // Reversed, for a heap whose top is the earliest; the subject makes the order total.
  friend bool operator<(const Event& a, const Event& b) {
    if (a.time != b.time) return a.time > b.time;
    if (a.phase != b.phase) return a.phase > b.phase;
    return a.subject > b.subject;
  }
};

/// The state of one run.
class ThreadRun : CoreRun {
 public:
  ThreadRun(const CoreOps& ops, std::span<const Picoseconds> starts)
      : CoreRun(ops, starts),
        next_arrival_(ops.ops.size(), kNone),
        rendezvous_(ops.rendezvous.size()),
        runnable_(ops.ranks()) {
    std::iota(runnable_.begin(), runnable_.end(), 0u);
  }

  EngineResult run() {
    run_ready();
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      const Event event = heap_.back();
      heap_.pop_back();
      switch (event.phase) {
        case EventPhase::post:
          post(event.subject, event.time);
          break;
        case EventPhase::arrive:
          arrive(event.subject, event.time);
          break;
        case EventPhase::proceed:
          proceed(event.subject, event.time);
          break;
      }
      run_ready();
    }
    return result();
  }

 private:
  struct RendezvousState {
    std::uint32_t arrived = 0;
    std::uint32_t arrivals = kNone;  // head of the list of arrived ops, through next_arrival_
  };

  void run_ready() {
    while (!runnable_.empty()) {
      const std::uint32_t rank = runnable_.back();
      runnable_.pop_back();
      advance(rank);
    }
  }

  /// Runs ops of one host until it blocks, arrives at a rendezvous or is through.
  void advance(std::uint32_t rank) {
    Host& state = hosts_[rank];
    while (state.next_op < ops_.first_op[rank + 1]) {
      const std::uint32_t i = state.next_op;
      const CoreOps::Op& op = ops_.ops[i];
      if (!wait_for_all(rank, op)) return;
      state.clock += op.dispatch;
      if (op.rendezvous != kNone) {
        push({state.clock, EventPhase::post, i});
        state.next();
        return;
      }
      times_[i].posted = times_[i].begin = state.clock;
      state.clock += op.duration;
      finish(i, state.clock, runnable_);
      state.next();
    }
  }

  void post(std::uint32_t op, Picoseconds now) {
    times_[op].posted = now;
    states_[op] = State::posted;
    const CoreOps::Op& laid_out = ops_.ops[op];
    push({now, EventPhase::proceed, laid_out.rank});
    if (laid_out.before == kNone ||
        (has_ended(laid_out.before) && times_[laid_out.before].end <= now)) {
      arrive(op, now);
    } else if (has_ended(laid_out.before)) {
      push({times_[laid_out.before].end, EventPhase::arrive, op});
    }  // else it arrives when that one ends
  }

  /// The last op to arrive completes the rendezvous for all.
  void arrive(std::uint32_t op, Picoseconds now) {
    const std::uint32_t rendezvous = ops_.ops[op].rendezvous;
    next_arrival_[op] = rendezvous_[rendezvous].arrivals;
    rendezvous_[rendezvous].arrivals = op;
    if (++rendezvous_[rendezvous].arrived == ops_.rendezvous[rendezvous].participants)
      complete(rendezvous, now);
  }

  void complete(std::uint32_t rendezvous, Picoseconds begin) {
    const Picoseconds end = begin + ops_.rendezvous[rendezvous].duration;
    charge(rendezvous, begin, end);
    for (std::uint32_t op = rendezvous_[rendezvous].arrivals; op != kNone; op = next_arrival_[op]) {
      times_[op].begin = begin;
      finish(op, end, runnable_);
      const CoreOps::Op& laid_out = ops_.ops[op];
      if (laid_out.after != kNone && states_[laid_out.after] != State::open) {
        push({end, EventPhase::arrive, laid_out.after});
      }
    }
  }

  /// Keeps the hosts that do the work of a rendezvous busy until `end`: those whose posts arrived
  /// last, and for posts that an earlier rendezvous delayed, those that did its work.
  void charge(std::uint32_t rendezvous, Picoseconds begin, Picoseconds end) {
    std::uint32_t charged = kNone;  // the same rendezvous often delays several posts
    for (std::uint32_t op = rendezvous_[rendezvous].arrivals; op != kNone; op = next_arrival_[op]) {
      const CoreOps::Op& laid_out = ops_.ops[op];
      if (times_[op].posted == begin) {
        hosts_[laid_out.rank].clock = std::max(hosts_[laid_out.rank].clock, end);
      } else if (laid_out.before != kNone && times_[laid_out.before].end == begin) {
        const std::uint32_t carried_by = ops_.ops[laid_out.before].rendezvous;
        if (carried_by != charged) charge(carried_by, times_[laid_out.before].begin, end);
        charged = carried_by;
      }
    }
  }

  void proceed(std::uint32_t rank, Picoseconds now) {
    if (hosts_[rank].clock > now) {  // charged; another charge may follow at that time
      push({hosts_[rank].clock, EventPhase::proceed, rank});
    } else {
      runnable_.push_back(rank);
    }
  }

  void push(const Event& event) {
    heap_.push_back(event);
    std::push_heap(heap_.begin(), heap_.end());
  }

  std::vector<std::uint32_t> next_arrival_;  // by op
  std::vector<RendezvousState> rendezvous_;
  std::vector<std::uint32_t> runnable_;
  std::vector<Event> heap_;
};

}  // namespace

EngineResult run_threads(const CoreOps& ops, std::span<const Picoseconds> starts) {
  return ThreadRun(ops, starts).run();
}

}  // namespace plimsoll
