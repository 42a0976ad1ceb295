// Event engine: actors run ahead through local items; arrivals at rendezvous go through one heap in
// time order, because who arrives last is decided there.
#include "simulator/engine.h"

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
  std::uint32_t subject;  // the actor that proceeds, or the item

  // Reversed, for a heap whose top is the earliest; the subject makes the order total.
  friend bool operator<(const Event& a, const Event& b) {
    if (a.time != b.time) return a.time > b.time;
    if (a.phase != b.phase) return a.phase > b.phase;
    return a.subject > b.subject;
  }
};

}  // namespace

/// What is known only while the items are laid out.
struct Engine::Building {
  std::unordered_map<std::uint64_t, std::uint32_t> meeting_of;  // looked up only, never iterated
  std::vector<std::vector<std::uint32_t>> lanes;                // by stream; of a host: one
  std::vector<std::uint32_t> last_rendezvous;                   // by stream
};

Engine::Engine(std::span<const std::vector<Item>> ranks, Execution execution)
    : execution_(execution) {
  std::size_t count = 0;
  for (const std::vector<Item>& items : ranks) count += items.size();
  INVARIANT(count < kNone, "too many items for one simulation");
  items_.reserve(count);
  order_.reserve(count);
  first_item_.push_back(0);
  Building building;
  for (const std::vector<Item>& items : ranks) add_rank(items, building);
}

void Engine::add_rank(const std::vector<Item>& items, Building& building) {
  const std::uint32_t base = first_item_.back();
  for (auto& lane : building.lanes) lane.clear();
  building.last_rendezvous.assign(building.last_rendezvous.size(), kNone);
  Picoseconds issued;
  for (std::uint32_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    INVARIANT(item.dispatch.count() > 0, "the dispatch time of an item must be positive");
    if (item.stream >= building.lanes.size()) {
      building.lanes.resize(item.stream + 1);
      building.last_rendezvous.resize(item.stream + 1, kNone);
    }
    issued += item.dispatch;
    FlatItem flat{};
    flat.dispatch = item.dispatch;
    flat.duration = item.duration;
    flat.issued = issued;
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
      flat.rendezvous = at->second;
      if (execution_ == Execution::host) {  // streams order themselves
        flat.before = std::exchange(building.last_rendezvous[item.stream], base + i);
        if (flat.before != kNone) items_[flat.before].after = base + i;
      }
    }
    building.lanes[execution_ == Execution::host ? 0 : item.stream].push_back(base + i);
    items_.push_back(flat);
  }
  const auto rank = std::uint32_t(first_item_.size() - 1);
  for (const std::vector<std::uint32_t>& lane : building.lanes) {
    const auto first = std::uint32_t(order_.size());
    for (std::uint32_t i : lane) items_[i].actor = std::uint32_t(actors_.size());
    order_.insert(order_.end(), lane.begin(), lane.end());
    actors_.push_back({rank, first, std::uint32_t(order_.size())});
    if (execution_ == Execution::host) break;
  }
  if (building.lanes.empty()) actors_.push_back({rank, 0, 0});
  first_item_.push_back(std::uint32_t(items_.size()));
}

/// The state of one run.
class EngineRun {
 public:
  EngineRun(const Engine& engine, std::span<const Picoseconds> starts)
      : engine_(engine),
        starts_(starts.begin(), starts.end()),
        times_(engine.items_.size(), ItemTimes{kUnknown, kUnknown, kUnknown}),
        waiter_(engine.items_.size(), kNone),
        next_arrival_(engine.items_.size(), kNone),
        meetings_(engine.meetings_.size()),
        actors_(engine.actors_.size()) {
    starts_.resize(engine.first_item_.size() - 1);
    for (std::uint32_t a = 0; a < actors_.size(); ++a) {
      actors_[a].next_item = engine.actors_[a].first_item;
      actors_[a].clock = starts_[engine.actors_[a].rank];
      runnable_.push_back(a);
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
  struct ActorState {
    Picoseconds clock;            // when it is free
    std::uint32_t next_item = 0;  // into order_
    std::uint32_t waits_done = 0;
    std::uint32_t next_waiter = kNone;  // list of the actors blocked on one item
  };
  struct MeetingState {
    std::uint32_t arrived = 0;
    std::uint32_t arrivals = kNone;  // head of the list of arrived items, through next_arrival_
  };

  void run_ready() {
    while (!runnable_.empty()) {
      const std::uint32_t actor = runnable_.back();
      runnable_.pop_back();
      advance(actor);
    }
  }

  /// Runs items of one actor until it blocks, arrives at a rendezvous or is through.
  void advance(std::uint32_t a) {
    const Engine::Actor& actor = engine_.actors_[a];
    ActorState& state = actors_[a];
    while (state.next_item < actor.last_item) {
      const std::uint32_t i = engine_.order_[state.next_item];
      const Engine::FlatItem& item = engine_.items_[i];
      if (!wait_for_all(a, item)) return;
      if (engine_.execution_ == Execution::host) {
        state.clock += item.dispatch;
      } else {
        state.clock = std::max(state.clock, starts_[actor.rank] + item.issued);
      }
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

  static void next(ActorState& state) {
    ++state.next_item;
    state.waits_done = 0;
  }

  bool wait_for_all(std::uint32_t a, const Engine::FlatItem& item) {
    ActorState& state = actors_[a];
    for (; item.first_wait + state.waits_done < item.last_wait; ++state.waits_done) {
      const std::uint32_t awaited = engine_.waits_[item.first_wait + state.waits_done];
      if (!known(awaited)) {
        state.next_waiter = waiter_[awaited];
        waiter_[awaited] = a;
        return false;
      }
      state.clock = std::max(state.clock, times_[awaited].end);
    }
    return true;
  }

  void finish(std::uint32_t item, Picoseconds end) {
    times_[item].end = end;
    for (std::uint32_t a = waiter_[item]; a != kNone; a = actors_[a].next_waiter) {
      runnable_.push_back(a);
    }
    waiter_[item] = kNone;
  }

  void post(std::uint32_t item, Picoseconds now) {
    times_[item].posted = now;
    const Engine::FlatItem& flat = engine_.items_[item];
    if (engine_.execution_ == Execution::host) push({now, EventPhase::proceed, flat.actor});
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
    if (engine_.execution_ == Execution::host) charge(m, begin, end);
    for (std::uint32_t item = meetings_[m].arrivals; item != kNone; item = next_arrival_[item]) {
      times_[item].begin = begin;
      finish(item, end);
      const Engine::FlatItem& flat = engine_.items_[item];
      if (engine_.execution_ == Execution::streams) {
        actors_[flat.actor].clock = end;
        runnable_.push_back(flat.actor);
      } else if (flat.after != kNone && times_[flat.after].posted != kUnknown) {
        push({end, EventPhase::arrive, flat.after});
      }
    }
  }

  /// Busies the hosts that do the work of a rendezvous until `end`: those whose posts arrived last,
  /// and for posts that were held by an earlier rendezvous, those that did its work.
  void charge(std::uint32_t m, Picoseconds begin, Picoseconds end) {
    std::uint32_t followed = kNone;  // several posts are often held by the same rendezvous
    for (std::uint32_t item = meetings_[m].arrivals; item != kNone; item = next_arrival_[item]) {
      const Engine::FlatItem& flat = engine_.items_[item];
      if (times_[item].posted == begin) {
        actors_[flat.actor].clock = std::max(actors_[flat.actor].clock, end);
      } else if (flat.before != kNone && times_[flat.before].end == begin) {
        const std::uint32_t held_by = engine_.items_[flat.before].rendezvous;
        if (held_by != followed) charge(held_by, times_[flat.before].begin, end);
        followed = held_by;
      }
    }
  }

  void proceed(std::uint32_t a, Picoseconds now) {
    if (actors_[a].clock > now) {  // it was charged; another charge may follow at that time
      push({actors_[a].clock, EventPhase::proceed, a});
    } else {
      runnable_.push_back(a);
    }
  }

  bool known(std::uint32_t item) const { return times_[item].end != kUnknown; }

  void push(const Event& event) {
    heap_.push_back(event);
    std::push_heap(heap_.begin(), heap_.end());
  }

  EngineResult result() const {
    const std::size_t ranks = starts_.size();
    EngineResult result;
    result.times.resize(ranks);
    result.host_end = starts_;
    for (std::size_t a = 0; a < actors_.size(); ++a) {
      const Engine::Actor& actor = engine_.actors_[a];
      INVARIANT(actors_[a].next_item == actor.last_item,
                "rank " + std::to_string(actor.rank) + " never gets past its item " +
                    std::to_string(engine_.order_[actors_[a].next_item] -
                                   engine_.first_item_[actor.rank]));
      if (engine_.execution_ == Execution::host) result.host_end[actor.rank] = actors_[a].clock;
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::uint32_t first = engine_.first_item_[rank], last = engine_.first_item_[rank + 1];
      result.times[rank].assign(times_.begin() + first, times_.begin() + last);
      if (engine_.execution_ == Execution::streams && last > first) {
        result.host_end[rank] += engine_.items_[last - 1].issued;
      }
      Picoseconds end = result.host_end[rank];
      for (const ItemTimes& times : result.times[rank]) {
        INVARIANT(times.end != kUnknown,
                  "a rendezvous of rank " + std::to_string(rank) + " never completes");
        end = std::max(end, times.end);
      }
      result.rank_end.push_back(end);
    }
    return result;
  }

  const Engine& engine_;
  std::vector<Picoseconds> starts_;
  std::vector<ItemTimes> times_;
  std::vector<std::uint32_t> waiter_;        // by item: head of the list of blocked actors
  std::vector<std::uint32_t> next_arrival_;  // by item
  std::vector<MeetingState> meetings_;
  std::vector<ActorState> actors_;
  std::vector<std::uint32_t> runnable_;
  std::vector<Event> heap_;
};

EngineResult Engine::run(std::span<const Picoseconds> starts) const {
  INVARIANT(starts.empty() || starts.size() + 1 == first_item_.size(), "one start per rank");
  return EngineRun(*this, starts).run();
}

EngineResult run_engine(std::span<const std::vector<Item>> ranks, Execution execution) {
  return Engine(ranks, execution).run();
}

}  // namespace plimsoll
