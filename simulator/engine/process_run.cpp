// Whatever changes a speed settles what was done until then; ends are events of one heap, and those
// that a later change made void are told by their version.
#include "simulator/engine/process_run.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
constexpr Picoseconds kUnknown{-1};  // no item ends before time 0

/// Picoseconds times kFullSpeed: beyond 64 bits.
__extension__ using Amount = __int128;

Amount amount_of(Picoseconds time) { return Amount(time.count()) * kFullSpeed; }

/// Something that is done at a speed which changes.
struct Activity {
  Amount left = 0;
  std::int64_t speed = 0;  ///< 0: has none yet
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

enum class EventKind : std::uint32_t { post, meeting, host, proceed };

struct Event {
  Picoseconds time;
  EventKind kind;
  std::uint32_t subject;  // item, meeting or rank
  std::uint32_t version;

  // Reversed, for a heap whose top is the earliest.
  friend bool operator<(const Event& a, const Event& b) {
    if (a.time != b.time) return a.time > b.time;
    if (a.kind != b.kind) return a.kind > b.kind;
    if (a.subject != b.subject) return a.subject > b.subject;
    return a.version > b.version;
  }
};

}  // namespace

class ProcessRun {
 public:
  ProcessRun(const HostEngine& engine, std::span<const Picoseconds> starts)
      : engine_(engine),
        times_(engine.items_.size(), ItemTimes{kUnknown, kUnknown, kUnknown}),
        waiter_(engine.items_.size(), kNone),
        meetings_(engine.meetings_.size()),
        hosts_(engine.first_item_.size() - 1) {
    for (std::uint32_t rank = 0; rank < hosts_.size(); ++rank) {
      hosts_[rank].next_item = engine.first_item_[rank];
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
      next.push_back(host.next_item);
      clocks.push_back(host.clock);
    }
    return engine_.result(times_, next, clocks);
  }

 private:
  struct Host {
    Picoseconds clock;  // when it is free
    std::uint32_t next_item = 0;
    std::uint32_t waits_done = 0;
    std::uint32_t next_waiter = kNone;  // list of the hosts blocked on one item
    std::uint32_t running = kNone;      // a local item that something may slow
    Activity work;
    std::uint32_t open = 0;             // rendezvous posted and not over
    std::vector<std::uint32_t> moving;  // items of those that are under way
  };
  struct Meeting {
    std::vector<std::uint32_t> arrivals;  // items
    bool latency = true;                  // the first part of its duration
    Activity transfer;
  };

  void handle(const Event& event) {
    switch (event.kind) {
      case EventKind::post:
        post(event.subject);
        break;
      case EventKind::meeting:
        if (meetings_[event.subject].transfer.version == event.version) advance(event.subject);
        break;
      case EventKind::host:
        if (hosts_[event.subject].work.version == event.version) end_work(event.subject);
        break;
      case EventKind::proceed:
        proceed(event.subject);
        break;
    }
  }

  /// Works through the items of a host that is free now, until it waits, posts or is through.
  void proceed(std::uint32_t rank) {
    Host& host = hosts_[rank];
    while (host.next_item < engine_.first_item_[rank + 1]) {
      const std::uint32_t i = host.next_item;
      const HostEngine::FlatItem& item = engine_.items_[i];
      if (!wait_for_all(rank, item)) return;
      if (item.rendezvous != kNone) {
        host.clock += item.dispatch;
        push({host.clock, EventKind::post, i, 0});
        next(host);
        return;
      }
      times_[i].posted = times_[i].begin = host.clock + item.dispatch;
      if (host.open > 0) {
        if (host.clock > now_) {  // it has just woken up
          push({host.clock, EventKind::proceed, rank, 0});
          return;
        }
        begin_work(rank, i);
        return;
      }
      // Nothing of this rank is under way, and nothing can be before it posts.
      host.clock = times_[i].begin + item.duration;
      finish(i, host.clock);
      next(host);
    }
  }

  static void next(Host& host) {
    ++host.next_item;
    host.waits_done = 0;
  }

  bool wait_for_all(std::uint32_t rank, const HostEngine::FlatItem& item) {
    Host& host = hosts_[rank];
    for (; item.first_wait + host.waits_done < item.last_wait; ++host.waits_done) {
      const std::uint32_t awaited = engine_.waits_[item.first_wait + host.waits_done];
      const Picoseconds end = times_[awaited].end;
      if (end == kUnknown) {
        host.next_waiter = waiter_[awaited];
        waiter_[awaited] = rank;
        return false;
      }
      if (end <= host.clock) continue;
      const bool slept = end - host.clock >= engine_.waking_.after;
      host.clock = slept ? end + engine_.waking_.delay : end;
    }
    return true;
  }

  void begin_work(std::uint32_t rank, std::uint32_t i) {
    Host& host = hosts_[rank];
    const HostEngine::FlatItem& item = engine_.items_[i];
    host.running = i;
    host.work.left = amount_of(item.dispatch + item.duration);
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
    if (host.running == kNone) refresh(rank);  // it waits or posts: nothing slows what is under way
  }

  void post(std::uint32_t i) {
    const HostEngine::FlatItem& item = engine_.items_[i];
    times_[i].posted = now_;
    ++hosts_[item.rank].open;
    if (item.before == kNone || times_[item.before].end != kUnknown) arrive(i);
    proceed(item.rank);
  }

  void arrive(std::uint32_t i) {
    const std::uint32_t m = engine_.items_[i].rendezvous;
    Meeting& meeting = meetings_[m];
    meeting.arrivals.push_back(i);
    const HostEngine::Meeting& known = engine_.meetings_[m];
    if (meeting.arrivals.size() < known.participants) return;
    meeting.transfer.left = amount_of(std::min(known.beside.latency, known.duration));
    meeting.transfer.since = now_;
    for (std::uint32_t item : meeting.arrivals) {
      times_[item].begin = now_;
      hosts_[engine_.items_[item].rank].moving.push_back(item);
    }
    refresh_ranks(meeting);
  }

  void refresh_ranks(const Meeting& meeting) {
    for (std::uint32_t item : meeting.arrivals) refresh(engine_.items_[item].rank);
  }

  /// A part of a meeting is over.
  void advance(std::uint32_t m) {
    Meeting& meeting = meetings_[m];
    const HostEngine::Meeting& known = engine_.meetings_[m];
    if (meeting.latency && known.duration > known.beside.latency) {
      meeting.latency = false;
      meeting.transfer.left = amount_of(known.duration - known.beside.latency);
      meeting.transfer.since = now_;
      meeting.transfer.speed = 0;
      set_speed(m);
      return;
    }
    ++meeting.transfer.version;
    std::vector<std::uint32_t> free;
    for (std::uint32_t item : meeting.arrivals) {
      Host& host = hosts_[engine_.items_[item].rank];
      std::erase(host.moving, item);
      --host.open;
    }
    for (std::uint32_t item : meeting.arrivals) finish(item, now_, &free);
    for (std::uint32_t item : meeting.arrivals) {
      const std::uint32_t after = engine_.items_[item].after;
      if (after != kNone && times_[after].posted != kUnknown) arrive(after);
    }
    refresh_ranks(meeting);
    for (std::uint32_t rank : free) proceed(rank);
  }

  /// Hosts that waited for the item: into `free`, where nothing else can be waiting for it null.
  void finish(std::uint32_t item, Picoseconds end, std::vector<std::uint32_t>* free = nullptr) {
    times_[item].end = end;
    for (std::uint32_t rank = waiter_[item]; rank != kNone; rank = hosts_[rank].next_waiter) {
      INVARIANT(free != nullptr, "hosts wait for their own items");
      free->push_back(rank);
    }
    waiter_[item] = kNone;
  }

  /// After something of this rank began or ended: how fast the rest is now.
  void refresh(std::uint32_t rank) {
    Host& host = hosts_[rank];
    if (host.running != kNone) {
      const auto work = std::size_t(engine_.items_[host.running].work);
      std::int64_t speed = kFullSpeed;
      for (std::uint32_t item : host.moving) {
        speed = std::min(speed, beside_of(item).compute[work]);
      }
      change(host.work, speed, EventKind::host, rank);
    }
    for (std::uint32_t item : host.moving) set_speed(engine_.items_[item].rendezvous);
  }

  void set_speed(std::uint32_t m) {
    Meeting& meeting = meetings_[m];
    const Beside& beside = engine_.meetings_[m].beside;
    std::int64_t speed = kFullSpeed, sharing = 1;
    for (std::uint32_t i : meeting.arrivals) {
      const HostEngine::FlatItem& item = engine_.items_[i];
      const Host& host = hosts_[item.rank];
      if (host.running != kNone) {
        const auto work = std::size_t(engine_.items_[host.running].work);
        speed = std::min(speed, beside.communication[work]);
      }
      std::int64_t senders = 0, receivers = 0;
      for (std::uint32_t other : host.moving) {
        senders += item.sends && engine_.items_[other].sends;
        receivers += item.receives && engine_.items_[other].receives;
      }
      sharing = std::max({sharing, senders, receivers});
    }
    if (!meeting.latency) speed = std::max(std::int64_t{1}, speed / sharing);
    change(meeting.transfer, speed, EventKind::meeting, m);
  }

  void change(Activity& activity, std::int64_t speed, EventKind kind, std::uint32_t subject) {
    if (activity.speed == speed) return;
    activity.settle(now_);
    activity.speed = speed;
    push({activity.end(), kind, subject, ++activity.version});
  }

  const Beside& beside_of(std::uint32_t item) const {
    return engine_.meetings_[engine_.items_[item].rendezvous].beside;
  }

  void push(const Event& event) {
    heap_.push_back(event);
    std::push_heap(heap_.begin(), heap_.end());
  }

  const HostEngine& engine_;
  std::vector<ItemTimes> times_;
  std::vector<std::uint32_t> waiter_;  // by item: head of the list of blocked hosts
  std::vector<Meeting> meetings_;
  std::vector<Host> hosts_;  // by rank
  std::vector<Event> heap_;
  Picoseconds now_;
};

EngineResult run_processes(const HostEngine& engine, std::span<const Picoseconds> starts) {
  return ProcessRun(engine, starts).run();
}

}  // namespace plimsoll
