#include "simulator/engine/stream_run.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace plimsoll {
namespace {

// Nothing ends before time 0. So an event that has not fired yet holds, below it, the lanes that
// are blocked on it: the last one of a list, or none.
constexpr std::int64_t kNobody = -1;
constexpr Picoseconds kUnknown{kNobody};

bool has_fired(Picoseconds event) { return event >= Picoseconds(0); }
constexpr std::int64_t waiter(std::uint32_t lane) { return kNobody - 1 - std::int64_t(lane); }
constexpr std::uint32_t lane_of(std::int64_t waiter) { return std::uint32_t(kNobody - 1 - waiter); }

/// As std::max, which takes references, and with them has compilers store both.
Picoseconds later(Picoseconds a, Picoseconds b) { return a < b ? b : a; }

constexpr std::uint32_t kNone = ~std::uint32_t{0};

}  // namespace

StreamRun::StreamRun(const StreamEngine& engine) : engine_(&engine) {
  inputs_.resize(engine.most_inputs_);
  rows_.resize(engine.most_rows_);
  if (!engine.link_uses_.empty()) lay_out_links();
}

void StreamRun::lay_out_links() {
  std::vector<std::uint32_t> numbers(engine_->ranks_.size() * kMostLinks, kNone);
  for (const StreamEngine::Meeting& meeting : engine_->meetings_) {
    first_link_.push_back(std::uint32_t(links_.size()));
    for (std::uint32_t use = meeting.links; use != kNone; use = engine_->link_uses_[use].next) {
      std::uint32_t& number = numbers[engine_->link_uses_[use].link];
      if (number == kNone) number = std::uint32_t(link_count_++);
      links_.push_back(number);
    }
  }
  first_link_.push_back(std::uint32_t(links_.size()));
}

void StreamRun::reset(std::span<const Picoseconds> starts, std::span<const Event> held_from,
                      StreamEngine::Keep keep) {
  starts_ = starts;
  held_from_ = held_from;
  keeps_all_ = keep == StreamEngine::Keep::all;
  result_.fired.assign(engine_->events_, kUnknown);
  result_.posted.resize(keeps_all_ ? engine_->events_ : 0);
  result_.begin.resize(keeps_all_ ? engine_->events_ : 0);
  result_.held_up_until = {};
  clocks_.resize(engine_->lanes_.size());
  for (std::size_t lane = 0; lane < clocks_.size(); ++lane)
    clocks_[lane] = starts[engine_->lanes_[lane].rank];
  delayed_.assign(keeps_all_ ? engine_->lanes_.size() : 0, {});
  of_next_ = delayed_;
  lanes_.assign(engine_->lanes_.size(), {});
  meetings_.assign(engine_->meetings_.size(), {});
  runnable_.clear();
  if (link_count_ > 0) shared_.emplace(link_count_);
}

void StreamRun::run(const StreamEngine& engine, std::span<const Picoseconds> starts,
                    std::span<const Event> held_from, StreamEngine::Keep keep) {
  engine_ = &engine;
  reset(starts, held_from, keep);
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) runnable_.push_back(lane);
  advance_all();
  while (const auto end = shared_ ? shared_->next() : std::nullopt) {
    complete(end->communication, end->time);
    advance_all();
  }
}

bool StreamRun::is_complete() const {
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    if (lanes_[lane].next < engine_->lanes_[lane].tasks.size()) return false;
  }
  return std::all_of(result_.fired.begin(), result_.fired.end(), has_fired);
}

void StreamRun::require_complete() const {
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    INVARIANT(lanes_[lane].next == engine_->lanes_[lane].tasks.size(),
              "rank " + std::to_string(engine_->lanes_[lane].rank) + " never gets past task " +
                  std::to_string(lanes_[lane].next) + " of its lane " +
                  std::to_string(lane - engine_->ranks_[engine_->lanes_[lane].rank].first));
  }
  for (Picoseconds fired : result_.fired) {
    INVARIANT(has_fired(fired), "a rendezvous never completes");
  }
}

const StreamEngine::Result& StreamRun::result() {
  result_.host_end.clear();
  result_.rank_end.clear();
  for (std::size_t r = 0; r < engine_->ranks_.size(); ++r) {
    const StreamEngine::Rank& rank = engine_->ranks_[r];
    Picoseconds end = host_clock(r, rank.since) + rank.issued;
    result_.host_end.push_back(end);
    for (std::size_t s = 0; s < rank.lane_of_stream.size(); ++s) {
      end = std::max(end, clocks_[rank.first + s]);
    }
    result_.rank_end.push_back(end);
  }
  return result_;
}

void StreamRun::advance_all() {
  while (!runnable_.empty()) {
    const std::uint32_t lane = runnable_.back();
    runnable_.pop_back();
    advance(lane);
  }
}

/// Works through one lane until it blocks, arrives at a rendezvous or is through.
void StreamRun::advance(std::uint32_t index) {
  LaneState& state = lanes_[index];
  const StreamEngine::Lane& lane = engine_->lanes_[index];
  while (state.next < lane.tasks.size()) {
    const Task& task = lane.tasks[state.next];
    prefetch_after(task);
    if (!wait_for_all(index, task)) return;
    const std::uint32_t first = engine_->ranks_[lane.rank].first;
    const bool of_next = task.kind == StreamEngine::Kind::delay_of_next;
    if (of_next || task.kind == StreamEngine::Kind::delay) {
      clocks_[first + task.stream] += Picoseconds(task.what);
      if (keeps_all_) delayed_[first + task.stream] += Picoseconds(task.what);
      if (keeps_all_ && of_next) of_next_[first + task.stream] += Picoseconds(task.what);
      ++state.next;
      continue;
    }
    const Picoseconds issued = host_clock(lane.rank, task.since) + task.issued;
    const Picoseconds awaited = state.awaited;
    ++state.next;
    state.awaited = {};
    if (task.kind == StreamEngine::Kind::call) {
      run_call(task, lane.rank, issued, awaited);
      continue;
    }
    const Picoseconds free = later(awaited, clocks_[first + task.stream]);
    if (keeps_all_) {
      const auto without = [&](std::vector<Picoseconds>& delays) {
        const Picoseconds delay = std::exchange(delays[first + task.stream], {});
        return later(issued, later(awaited, clocks_[first + task.stream] - delay));
      };
      result_.posted[task.event] = without(delayed_);
      result_.begin[task.event] = without(of_next_);  // of a rendezvous: until it is complete
    }
    if (task.kind == StreamEngine::Kind::local) {
      run_op(task, lane.rank, issued, free);
      continue;
    }
    const Picoseconds ready = later(issued, free);
    arrive(engine_->participants_[std::size_t(task.what)], ready,
           counts_as_held(lane.rank, task) ? free : ready);
    return;
  }
}

/// Most of a run's time is spent waiting for memory: asks for a later task of the lane, and for
/// what about as many write.
void StreamRun::prefetch_after(const Task& task) const {
  constexpr std::size_t kTasks = 4, kEvents = 8;
  // May lie behind the end: an address, not a pointer into the array.
  const auto address = [](const auto* first, std::size_t index) {
    return reinterpret_cast<const void*>(std::uintptr_t(first) + index * sizeof(*first));
  };
  const std::size_t event = task.event + kEvents;
  __builtin_prefetch(address(&task, kTasks));
  __builtin_prefetch(address(result_.fired.data(), event), 1);
  if (!keeps_all_) return;
  __builtin_prefetch(address(result_.posted.data(), event), 1);
  __builtin_prefetch(address(result_.begin.data(), event), 1);
}

bool StreamRun::wait_for_all(std::uint32_t index, const Task& task) {
  if (task.since != kNone && !has_fired(result_.fired[task.since])) return block(index, task.since);
  LaneState& state = lanes_[index];
  const std::vector<Event>& waits = engine_->lanes_[index].waits;
  for (; state.waits_done < task.last_wait; ++state.waits_done) {
    const Event event = waits[state.waits_done];
    const Picoseconds fired = result_.fired[event];
    if (!has_fired(fired)) return block(index, event);
    state.awaited = later(state.awaited, fired);
  }
  return true;
}

bool StreamRun::block(std::uint32_t lane, Event event) {
  lanes_[lane].next_waiter = result_.fired[event].count();
  result_.fired[event] = Picoseconds(waiter(lane));
  return false;
}

void StreamRun::fire(Event event, Picoseconds time) {
  std::int64_t waiting = result_.fired[event].count();
  result_.fired[event] = time;
  for (; waiting != kNobody; waiting = lanes_[lane_of(waiting)].next_waiter) {
    runnable_.push_back(lane_of(waiting));
  }
}

void StreamRun::run_op(const Task& task, std::uint32_t rank, Picoseconds issued, Picoseconds free) {
  const Picoseconds begin = later(issued, free);
  const Picoseconds end = begin + Picoseconds(task.what);
  clocks_[engine_->ranks_[rank].first + task.stream] = end;
  if (issued > free && counts_as_held(rank, task)) hold_up(end);
  fire(task.event, end);
}

void StreamRun::run_call(const Task& task, std::uint32_t rank, Picoseconds issued,
                         Picoseconds awaited) {
  const RoutineMap& map = *task.map;
  const std::uint32_t first = engine_->ranks_[rank].first;
  Picoseconds* const clocks = clocks_.data() + first;
  const std::size_t streams = map.streams.size();
  inputs_[RoutineMap::kIssued] = issued;
  inputs_[RoutineMap::kAwaited] = awaited;
  for (std::size_t s = 0; s < streams; ++s)
    inputs_[RoutineMap::kClocks + s] = clocks[map.streams[s]];
  const bool held_up = apply(map, inputs_.data(), rows_.data());
  for (std::size_t s = 0; s < streams; ++s) clocks[map.streams[s]] = rows_[s];
  for (std::size_t s = 0; s < streams && keeps_all_; ++s) {
    const std::size_t clock = first + map.streams[s];
    delayed_[clock] = of_next_[clock] = {};
  }
  for (std::uint32_t e = 0; e < map.events; ++e) fire(task.event + e, rows_[streams + e]);
  if (held_up && counts_as_held(rank, task)) {
    hold_up(*std::max_element(rows_.begin(), rows_.begin() + std::ptrdiff_t(streams + map.events)));
  }
}

/// The last one to come completes the rendezvous for all.
void StreamRun::arrive(const StreamEngine::Participant& participant, Picoseconds time,
                       Picoseconds unissued) {
  MeetingState& meeting = meetings_[participant.meeting];
  meeting.last = later(meeting.last, time);
  meeting.unissued = later(meeting.unissued, unissued);
  const StreamEngine::Meeting& known = engine_->meetings_[participant.meeting];
  if (++meeting.arrived < known.participants) return;
  if (known.links == kNone) {
    return complete(participant.meeting, meeting.last + known.duration);
  }
  const Picoseconds latency = std::min(known.latency, known.duration);
  const std::uint32_t first = first_link_[participant.meeting];
  shared_->begin(participant.meeting, meeting.last + latency, known.duration - latency,
                 std::span(links_).subspan(first, first_link_[participant.meeting + 1] - first));
}

/// For all that have arrived.
void StreamRun::complete(std::uint32_t number, Picoseconds end) {
  const MeetingState& meeting = meetings_[number];
  if (meeting.last > meeting.unissued) hold_up(end);
  for (std::uint32_t i = engine_->meetings_[number].first; i != kNone;
       i = engine_->participants_[i].next) {
    const StreamEngine::Participant& arrived = engine_->participants_[i];
    if (keeps_all_) result_.begin[arrived.event] = meeting.last;
    clocks_[arrived.lane] = end;
    fire(arrived.event, end);
    runnable_.push_back(arrived.lane);
  }
}

/// Whether it is issued so long after something that is not of the cycles (StreamEngine::Result).
bool StreamRun::counts_as_held(std::uint32_t rank, const Task& task) const {
  return task.since == kNone || (rank < held_from_.size() && task.since < held_from_[rank]);
}

void StreamRun::hold_up(Picoseconds until) {
  result_.held_up_until = later(result_.held_up_until, until);
}

Picoseconds StreamRun::host_clock(std::size_t rank, Event since) const {
  return since == kNone ? starts_[rank] : result_.fired[since];
}

}  // namespace plimsoll
