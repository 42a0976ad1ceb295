// Hosts run ahead through local items; arrivals at rendezvous go through one heap in time order,
// because who arrives last is decided there.
#include "simulator/engine/host_engine.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
constexpr Picoseconds kUnknown{-1};  // no item ends before time 0

/// At equal times all arrivals come before any host goes on: those who tie are charged together.
enum class EventPhase : std::uint32_t { post, arrive, proceed };

struct Event {
  Picoseconds time;
  EventPhase phase;
  std::uint32_t subject;  // the rank that proceeds, or the item

  // Reversed, for a heap whose top is the earliest; the subject makes the order total.
  friend bool operator<(const Event& a, const Event& b) {
    if (a.time != b.time) return a.time > b.time;
    if (a.phase != b.phase) return a.phase > b.phase;
    return a.subject > b.subject;
  }
};

}  // namespace

/// Facts that are known only while the items are laid out.
struct HostEngine::Building {
  std::unordered_map<std::uint64_t, std::uint32_t> meeting_of;  // looked up only, never iterated
  std::vector<std::uint32_t> last_rendezvous;                   // by stream
};

HostEngine::HostEngine(std::span<const std::vector<Item>> ranks, const Waking& waking,
                       std::span<const Beside> besides)
    : waking_(waking) {
  std::size_t count = 0;
  for (const std::vector<Item>& items : ranks) count += items.size();
  INVARIANT(count < kNone, "too many items for one simulation");
  items_.reserve(count);
  first_item_.push_back(0);
  Building building;
  for (const std::vector<Item>& items : ranks) add_rank(items, besides, building);
}

namespace {

/// Joins what several participants say of one rendezvous.
void slow_down(Beside& slowest, const Beside& other) {
  for (std::size_t work = 0; work < kWorks; ++work) {
    slowest.communication[work] = std::min(slowest.communication[work], other.communication[work]);
    slowest.compute[work] = std::min(slowest.compute[work], other.compute[work]);
  }
  slowest.latency = std::max(slowest.latency, other.latency);
}

}  // namespace

void HostEngine::add_rank(const std::vector<Item>& items, std::span<const Beside> besides,
                          Building& building) {
  const std::uint32_t base = first_item_.back();
  const auto rank = std::uint32_t(first_item_.size() - 1);
  building.last_rendezvous.assign(building.last_rendezvous.size(), kNone);
  for (std::uint32_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    INVARIANT(item.dispatch.count() > 0, "the dispatch time of an item must be positive");
    FlatItem flat{};
    flat.dispatch = item.dispatch;
    flat.duration = item.duration;
    flat.rank = rank;
    flat.work = item.work;
    flat.rendezvous = flat.before = flat.after = kNone;
    flat.first_wait = std::uint32_t(waits_.size());
    for (std::uint32_t wait : item.waits) {
      INVARIANT(wait < i, "an item waits for a later one");
      waits_.push_back(base + wait);
    }
    flat.last_wait = std::uint32_t(waits_.size());
    if (item.rendezvous) {
      const auto [at, added] =
          building.meeting_of.try_emplace(*item.rendezvous, std::uint32_t(meetings_.size()));
      if (added) meetings_.emplace_back();
      Meeting& meeting = meetings_[at->second];
      ++meeting.participants;
      meeting.duration = std::max(meeting.duration, item.duration);
      if (!besides.empty()) {
        const Beside& beside = besides[item.beside];
        slow_down(meeting.beside, beside);
        flat.sends = beside.sends;
        flat.receives = beside.receives;
      }
      flat.rendezvous = at->second;
      if (item.stream >= building.last_rendezvous.size()) {
        building.last_rendezvous.resize(item.stream + 1, kNone);
      }
      flat.before = std::exchange(building.last_rendezvous[item.stream], base + i);
      if (flat.before != kNone) items_[flat.before].after = base + i;
    }
    items_.push_back(flat);
  }
  first_item_.push_back(std::uint32_t(items_.size()));
}

/// The state of one run.
class HostRun {
 public:
  HostRun(const HostEngine& engine, std::span<const Picoseconds> starts)
      : engine_(engine),
        times_(engine.items_.size(), ItemTimes{kUnknown, kUnknown, kUnknown}),
        waiter_(engine.items_.size(), kNone),
        next_arrival_(engine.items_.size(), kNone),
        meetings_(engine.meetings_.size()),
        hosts_(engine.first_item_.size() - 1) {
    for (std::uint32_t rank = 0; rank < hosts_.size(); ++rank) {
      hosts_[rank].next_item = engine.first_item_[rank];
      hosts_[rank].clock = starts[rank];
      runnable_.push_back(rank);
    }
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
  struct HostState {
    Picoseconds clock;  // when it is free
    std::uint32_t next_item = 0;
    std::uint32_t waits_done = 0;
    std::uint32_t next_waiter = kNone;  // list of the hosts blocked on one item
  };
  struct MeetingState {
    std::uint32_t arrived = 0;
    std::uint32_t arrivals = kNone;  // head of the list of arrived items, through next_arrival_
  };

  void run_ready() {
    while (!runnable_.empty()) {
      const std::uint32_t rank = runnable_.back();
      runnable_.pop_back();
      advance(rank);
    }
  }

  /// Runs items of one host until it blocks, arrives at a rendezvous or is through.
  void advance(std::uint32_t rank) {
    HostState& state = hosts_[rank];
    while (state.next_item < engine_.first_item_[rank + 1]) {
      const std::uint32_t i = state.next_item;
      const HostEngine::FlatItem& item = engine_.items_[i];
      if (!wait_for_all(rank, item)) return;
      state.clock += item.dispatch;
      if (item.rendezvous != kNone) {
        push({state.clock, EventPhase::post, i});
        next(state);
        return;
      }
      times_[i].posted = times_[i].begin = state.clock;
      state.clock += item.duration;
      finish(i, state.clock);
      next(state);
    }
  }

  static void next(HostState& state) {
    ++state.next_item;
    state.waits_done = 0;
  }

  bool wait_for_all(std::uint32_t rank, const HostEngine::FlatItem& item) {
    HostState& state = hosts_[rank];
    for (; item.first_wait + state.waits_done < item.last_wait; ++state.waits_done) {
      const std::uint32_t awaited = engine_.waits_[item.first_wait + state.waits_done];
      if (!known(awaited)) {
        state.next_waiter = waiter_[awaited];
        waiter_[awaited] = rank;
        return false;
      }
      const Picoseconds end = times_[awaited].end;
      if (end <= state.clock) continue;
      const bool slept = end - state.clock >= engine_.waking_.after;
      state.clock = slept ? end + engine_.waking_.delay : end;
    }
    return true;
  }

  void finish(std::uint32_t item, Picoseconds end) {
    times_[item].end = end;
    for (std::uint32_t rank = waiter_[item]; rank != kNone; rank = hosts_[rank].next_waiter) {
      runnable_.push_back(rank);
    }
    waiter_[item] = kNone;
  }

  void post(std::uint32_t item, Picoseconds now) {
    times_[item].posted = now;
    const HostEngine::FlatItem& flat = engine_.items_[item];
    push({now, EventPhase::proceed, flat.rank});
    if (flat.before == kNone || (known(flat.before) && times_[flat.before].end <= now)) {
      arrive(item, now);
    } else if (known(flat.before)) {
      push({times_[flat.before].end, EventPhase::arrive, item});
    }  // else it arrives when that one ends
  }

  /// The last one to come completes the rendezvous for all.
  void arrive(std::uint32_t item, Picoseconds now) {
    const std::uint32_t m = engine_.items_[item].rendezvous;
    next_arrival_[item] = meetings_[m].arrivals;
    meetings_[m].arrivals = item;
    if (++meetings_[m].arrived == engine_.meetings_[m].participants) complete(m, now);
  }

  void complete(std::uint32_t m, Picoseconds begin) {
    const Picoseconds end = begin + engine_.meetings_[m].duration;
    charge(m, begin, end);
    for (std::uint32_t item = meetings_[m].arrivals; item != kNone; item = next_arrival_[item]) {
      times_[item].begin = begin;
      finish(item, end);
      const HostEngine::FlatItem& flat = engine_.items_[item];
      if (flat.after != kNone && times_[flat.after].posted != kUnknown) {
        push({end, EventPhase::arrive, flat.after});
      }
    }
  }

  /// Busies the hosts that do the work of a rendezvous until `end`: those whose posts arrived last,
  /// and for posts that were held by an earlier rendezvous, those that did its work.
  void charge(std::uint32_t m, Picoseconds begin, Picoseconds end) {
    std::uint32_t followed = kNone;  // several posts are often held by the same rendezvous
    for (std::uint32_t item = meetings_[m].arrivals; item != kNone; item = next_arrival_[item]) {
      const HostEngine::FlatItem& flat = engine_.items_[item];
      if (times_[item].posted == begin) {
        hosts_[flat.rank].clock = std::max(hosts_[flat.rank].clock, end);
      } else if (flat.before != kNone && times_[flat.before].end == begin) {
        const std::uint32_t held_by = engine_.items_[flat.before].rendezvous;
        if (held_by != followed) charge(held_by, times_[flat.before].begin, end);
        followed = held_by;
      }
    }
  }

  void proceed(std::uint32_t rank, Picoseconds now) {
    if (hosts_[rank].clock > now) {  // it was charged; another charge may follow at that time
      push({hosts_[rank].clock, EventPhase::proceed, rank});
    } else {
      runnable_.push_back(rank);
    }
  }

  bool known(std::uint32_t item) const { return times_[item].end != kUnknown; }

  void push(const Event& event) {
    heap_.push_back(event);
    std::push_heap(heap_.begin(), heap_.end());
  }

  EngineResult result() const {
    std::vector<std::uint32_t> next;
    std::vector<Picoseconds> clocks;
    for (const HostState& host : hosts_) {
      next.push_back(host.next_item);
      clocks.push_back(host.clock);
    }
    return engine_.result(times_, next, clocks);
  }

  const HostEngine& engine_;
  std::vector<ItemTimes> times_;
  std::vector<std::uint32_t> waiter_;        // by item: head of the list of blocked hosts
  std::vector<std::uint32_t> next_arrival_;  // by item
  std::vector<MeetingState> meetings_;
  std::vector<HostState> hosts_;  // by rank
  std::vector<std::uint32_t> runnable_;
  std::vector<Event> heap_;
};

EngineResult HostEngine::result(const std::vector<ItemTimes>& times,
                                std::span<const std::uint32_t> next_item,
                                std::span<const Picoseconds> clock) const {
  EngineResult result;
  for (std::size_t rank = 0; rank < clock.size(); ++rank) {
    const std::uint32_t first = first_item_[rank], last = first_item_[rank + 1];
    INVARIANT(next_item[rank] == last, "rank " + std::to_string(rank) +
                                           " never gets past its item " +
                                           std::to_string(next_item[rank] - first));
    result.host_end.push_back(clock[rank]);
    result.times.emplace_back(times.begin() + first, times.begin() + last);
    Picoseconds end = clock[rank];
    for (const ItemTimes& item : result.times.back()) {
      INVARIANT(item.end != kUnknown,
                "a rendezvous of rank " + std::to_string(rank) + " never completes");
      end = std::max(end, item.end);
    }
    result.rank_end.push_back(end);
  }
  return result;
}

EngineResult HostEngine::run(std::span<const Picoseconds> starts) const {
  INVARIANT(starts.size() + 1 == first_item_.size(), "one start per rank");
  return HostRun(*this, starts).run();
}

}  // namespace plimsoll
