#include "simulator/stream_engine.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "simulator/shared_links.h"

namespace plimsoll {
namespace {

constexpr Picoseconds kUnknown{-1};  // nothing ends before time 0

}  // namespace

void StreamEngine::add_rank(std::vector<std::uint32_t> lane_of_stream) {
  Rank rank;
  lane_of_stream.push_back(std::uint32_t(lane_of_stream.size()));
  rank.first_clock = clocks_;
  rank.first_lane = std::uint32_t(lanes_.size());
  clocks_ += std::uint32_t(lane_of_stream.size());
  lanes_.resize(lanes_.size() + lane_of_stream.size(),
                {std::uint32_t(ranks_.size()), kNone, kNone});
  rank.lane_of_stream = std::move(lane_of_stream);
  ranks_.push_back(std::move(rank));
}

StreamEngine::Task& StreamEngine::add_task(std::uint32_t stream, std::span<const Event> waits) {
  Rank& rank = ranks_.back();
  INVARIANT(tasks_.size() < kNone, "too many tasks for one simulation");
  const auto index = std::uint32_t(tasks_.size());
  Lane& lane = lanes_[rank.first_lane + rank.lane_of_stream[stream]];
  (lane.first == kNone ? lane.first : tasks_[lane.last].next) = index;
  lane.last = index;
  for (Event event : waits) {
    INVARIANT(event < events_, "a wait for a later event");
    waits_.push_back(event);
  }
  Task& task = tasks_.emplace_back();
  task.stream = rank.first_clock + stream;
  task.last_wait = std::uint32_t(waits_.size());
  task.event = events_;
  task.issued = rank.issued;
  task.since = rank.since;
  return task;
}

StreamEngine::Event StreamEngine::add_op(const Op& op, std::span<const Event> waits) {
  INVARIANT(op.dispatch.count() > 0, "the dispatch time of an op must be positive");
  Task& task = add_task(op.stream, waits);
  task.issued += op.dispatch;
  ranks_.back().issued = task.issued;
  task.duration = op.duration;
  if (op.rendezvous || op.link_use.links != 0) task.rendezvous = meeting_of(op);
  return events_++;
}

/// What shares links is one, too, if it is alone.
std::uint32_t StreamEngine::meeting_of(const Op& op) {
  auto number = std::uint32_t(meetings_.size());
  if (op.rendezvous) number = numbers_.try_emplace(*op.rendezvous, number).first->second;
  if (number == meetings_.size()) meetings_.emplace_back();
  Meeting& meeting = meetings_[number];
  ++meeting.participants;
  meeting.duration = std::max(meeting.duration, op.duration);
  meeting.latency = std::max(meeting.latency, op.link_use.latency);
  for (std::uint32_t bit = 0; bit < kMostLinks; ++bit) {
    if ((op.link_use.links >> bit & 1) == 0) continue;
    link_uses_.push_back({std::uint32_t(ranks_.size() - 1) * kMostLinks + bit, meeting.links});
    meeting.links = std::uint32_t(link_uses_.size() - 1);
  }
  return number;
}

StreamEngine::Event StreamEngine::add_call(const RoutineMap& map, std::span<const Event> waits) {
  Task& task = add_task(map.streams.front(), waits);
  task.map = &map;
  events_ += map.events;
  Rank& rank = ranks_.back();
  rank.issued += map.dispatch;
  if (map.host_waits) {
    rank.since = events_ - 1;
    rank.issued = {};
  }
  return task.event;
}

StreamEngine::Event StreamEngine::add_host_wait(Picoseconds cost, std::span<const Event> waits) {
  Rank& rank = ranks_.back();
  add_task(std::uint32_t(rank.lane_of_stream.size() - 1), waits).duration = cost;
  rank.since = events_;
  rank.issued = {};
  return events_++;
}

StreamEngine::HostTime StreamEngine::host_time() const {
  const Rank& rank = ranks_.back();
  if (rank.since == kNone) return {std::nullopt, rank.issued};
  return {rank.since, rank.issued};
}

/// The state of one run.
class StreamRun {
 public:
  StreamRun(const StreamEngine& engine, std::span<const Picoseconds> starts,
            std::span<const StreamEngine::Event> held_from)
      : engine_(engine),
        starts_(starts),
        held_from_(held_from),
        clocks_(engine.clocks_),
        waiter_(engine.events_, StreamEngine::kNone),
        next_arrival_(engine.events_, StreamEngine::kNone),
        lanes_(engine.lanes_.size()),
        meetings_(engine.meetings_.size()) {
    result_.fired.assign(engine.events_, kUnknown);
    result_.posted.resize(engine.events_);
    result_.begin.resize(engine.events_);
    if (!engine.link_uses_.empty()) lay_out_links();
  }

  void run() {
    for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
      lanes_[lane].next = engine_.lanes_[lane].first;
      lanes_[lane].waits_done = first_wait(lanes_[lane].next);
      runnable_.push_back(lane);
    }
    advance_all();
    while (const auto end = shared_ ? shared_->next() : std::nullopt) {
      complete(end->communication, end->time);
      advance_all();
    }
  }

  bool is_complete() const {
    return std::all_of(lanes_.begin(), lanes_.end(),
                       [](const LaneState& lane) { return lane.next == kNone; }) &&
           std::find(result_.fired.begin(), result_.fired.end(), kUnknown) == result_.fired.end();
  }

  void require_complete() const {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      INVARIANT(lanes_[lane].next == kNone, "rank " + std::to_string(engine_.lanes_[lane].rank) +
                                                " never gets past its task " +
                                                std::to_string(lanes_[lane].next));
    }
    for (Picoseconds fired : result_.fired) {
      INVARIANT(fired != kUnknown, "a rendezvous never completes");
    }
  }

  /// Once it is complete.
  StreamEngine::Result result() && {
    for (std::size_t r = 0; r < engine_.ranks_.size(); ++r) {
      const StreamEngine::Rank& rank = engine_.ranks_[r];
      Picoseconds end = host_clock(r, rank.since) + rank.issued;
      result_.host_end.push_back(end);
      for (std::size_t s = 0; s < rank.lane_of_stream.size(); ++s) {
        end = std::max(end, clocks_[rank.first_clock + s]);
      }
      result_.rank_end.push_back(end);
    }
    return std::move(result_);
  }

 private:
  static constexpr std::uint32_t kNone = StreamEngine::kNone;
  struct LaneState {
    std::uint32_t next = kNone;         // task
    std::uint32_t waits_done = 0;       // index into waits_
    Picoseconds awaited;                // the latest of those
    std::uint32_t next_waiter = kNone;  // list of the lanes blocked on one event
  };
  struct MeetingState {
    std::uint32_t arrived = 0;
    std::uint32_t arrivals = kNone;  // head of the list of arrived tasks, through next_arrival_
    Picoseconds last;
    Picoseconds unissued;  // ... if hosts had issued earlier
  };

  void advance_all() {
    while (!runnable_.empty()) {
      const std::uint32_t lane = runnable_.back();
      runnable_.pop_back();
      advance(lane);
    }
  }

  std::uint32_t first_wait(std::uint32_t task) const {
    return task == kNone || task == 0 ? 0 : engine_.tasks_[task - 1].last_wait;
  }

  /// Works through one lane until it blocks, arrives at a rendezvous or is through.
  void advance(std::uint32_t lane) {
    LaneState& state = lanes_[lane];
    const std::uint32_t rank = engine_.lanes_[lane].rank;
    while (state.next != kNone) {
      const std::uint32_t index = state.next;
      const StreamEngine::Task& task = engine_.tasks_[index];
      if (!wait_for_all(lane, task)) return;
      const Picoseconds issued = host_clock(rank, task.since) + task.issued;
      const Picoseconds awaited = state.awaited;
      state.next = task.next;
      state.waits_done = first_wait(task.next);
      state.awaited = {};
      if (task.map != nullptr) {
        const bool held_up = run_call(task, engine_.ranks_[rank].first_clock, issued, awaited);
        if (held_up && counts_as_held(rank, task)) hold_up(latest_row());
        continue;
      }
      const Picoseconds free = std::max(awaited, clocks_[task.stream]);
      const Picoseconds ready = std::max(issued, free);
      result_.posted[task.event] = ready;
      if (task.rendezvous != kNone) {
        arrive(index, ready, counts_as_held(rank, task) ? free : ready);
        return;
      }
      result_.begin[task.event] = ready;
      clocks_[task.stream] = ready + task.duration;
      if (issued > free && counts_as_held(rank, task)) hold_up(clocks_[task.stream]);
      fire(task.event, clocks_[task.stream]);
    }
  }

  /// Whether it is issued so long after something that is not of the cycles (StreamEngine::Result).
  bool counts_as_held(std::uint32_t rank, const StreamEngine::Task& task) const {
    return task.since == kNone || (rank < held_from_.size() && task.since < held_from_[rank]);
  }
  void hold_up(Picoseconds until) {
    result_.held_up_until = std::max(result_.held_up_until, until);
  }
  Picoseconds latest_row() const { return *std::max_element(rows_.begin(), rows_.end()); }

  Picoseconds host_clock(std::size_t rank, StreamEngine::Event since) const {
    return since == kNone ? starts_[rank] : result_.fired[since];
  }

  bool wait_for_all(std::uint32_t lane, const StreamEngine::Task& task) {
    LaneState& state = lanes_[lane];
    if (task.since != kNone && result_.fired[task.since] == kUnknown) {
      return block(lane, task.since);
    }
    for (; state.waits_done < task.last_wait; ++state.waits_done) {
      const StreamEngine::Event event = engine_.waits_[state.waits_done];
      if (result_.fired[event] == kUnknown) return block(lane, event);
      state.awaited = std::max(state.awaited, result_.fired[event]);
    }
    return true;
  }

  bool block(std::uint32_t lane, StreamEngine::Event event) {
    lanes_[lane].next_waiter = waiter_[event];
    waiter_[event] = lane;
    return false;
  }

  /// Whether the host held it up.
  bool run_call(const StreamEngine::Task& task, std::uint32_t first_clock, Picoseconds issued,
                Picoseconds awaited) {
    const RoutineMap& map = *task.map;
    inputs_ = {issued, awaited};
    for (std::uint32_t stream : map.streams) inputs_.push_back(clocks_[first_clock + stream]);
    rows_.resize(map.row_end.size());
    const bool held_up = apply(map, inputs_, rows_);
    for (std::size_t s = 0; s < map.streams.size(); ++s) {
      clocks_[first_clock + map.streams[s]] = rows_[s];
    }
    for (std::uint32_t e = 0; e < map.events; ++e) {
      fire(task.event + e, rows_[map.streams.size() + e]);
    }
    return held_up;
  }

  void fire(StreamEngine::Event event, Picoseconds time) {
    result_.fired[event] = time;
    for (std::uint32_t lane = waiter_[event]; lane != kNone; lane = lanes_[lane].next_waiter) {
      runnable_.push_back(lane);
    }
    waiter_[event] = kNone;
  }

  /// The last one to come completes the rendezvous for all.
  void arrive(std::uint32_t index, Picoseconds time, Picoseconds unissued) {
    const StreamEngine::Task& task = engine_.tasks_[index];
    MeetingState& meeting = meetings_[task.rendezvous];
    next_arrival_[task.event] = meeting.arrivals;
    meeting.arrivals = index;
    meeting.last = std::max(meeting.last, time);
    meeting.unissued = std::max(meeting.unissued, unissued);
    const StreamEngine::Meeting& known = engine_.meetings_[task.rendezvous];
    if (++meeting.arrived < known.participants) return;
    if (known.links == kNone) return complete(task.rendezvous, meeting.last + known.duration);
    const Picoseconds latency = std::min(known.latency, known.duration);
    shared_->begin(task.rendezvous, meeting.last + latency, known.duration - latency,
                   links_of(task.rendezvous));
  }

  /// For all that have arrived.
  void complete(std::uint32_t number, Picoseconds end) {
    const MeetingState& meeting = meetings_[number];
    if (meeting.last > meeting.unissued) hold_up(end);
    for (std::uint32_t i = meeting.arrivals; i != kNone;
         i = next_arrival_[engine_.tasks_[i].event]) {
      const StreamEngine::Task& arrived = engine_.tasks_[i];
      result_.begin[arrived.event] = meeting.last;
      clocks_[arrived.stream] = end;
      fire(arrived.event, end);
      runnable_.push_back(lane_of(arrived));
    }
  }

  std::span<const std::uint32_t> links_of(std::uint32_t meeting) const {
    return std::span(links_).subspan(first_link_[meeting],
                                     first_link_[meeting + 1] - first_link_[meeting]);
  }

  void lay_out_links() {
    for (const StreamEngine::Meeting& meeting : engine_.meetings_) {
      first_link_.push_back(std::uint32_t(links_.size()));
      for (std::uint32_t use = meeting.links; use != kNone; use = engine_.link_uses_[use].next) {
        links_.push_back(engine_.link_uses_[use].link);
      }
    }
    first_link_.push_back(std::uint32_t(links_.size()));
    shared_.emplace(engine_.meetings_.size(), engine_.ranks_.size() * kMostLinks);
  }

  std::uint32_t lane_of(const StreamEngine::Task& task) const {
    const auto after = std::upper_bound(engine_.ranks_.begin(), engine_.ranks_.end(), task.stream,
                                        [](std::uint32_t clock, const StreamEngine::Rank& rank) {
                                          return clock < rank.first_clock;
                                        });
    const StreamEngine::Rank& rank = *std::prev(after);
    return rank.first_lane + rank.lane_of_stream[task.stream - rank.first_clock];
  }

  const StreamEngine& engine_;
  std::span<const Picoseconds> starts_;
  std::span<const StreamEngine::Event> held_from_;
  StreamEngine::Result result_;
  std::vector<Picoseconds> clocks_;
  std::vector<std::uint32_t> waiter_;        // by event: head of the list of blocked lanes
  std::vector<std::uint32_t> next_arrival_;  // by event: task
  std::vector<LaneState> lanes_;
  std::vector<MeetingState> meetings_;
  std::optional<SharedLinks> shared_;
  std::vector<std::uint32_t> links_, first_link_;  // by meeting: which of the ranks' links
  std::vector<std::uint32_t> runnable_;
  std::vector<Picoseconds> inputs_, rows_;
};

StreamEngine::Result StreamEngine::run(std::span<const Picoseconds> starts) const {
  INVARIANT(starts.size() == ranks_.size(), "one start per rank");
  StreamRun run(*this, starts, {});
  run.run();
  run.require_complete();
  return std::move(run).result();
}

std::optional<StreamEngine::Result> StreamEngine::try_run(std::span<const Picoseconds> starts,
                                                          std::span<const Event> held_from) const {
  INVARIANT(starts.size() == ranks_.size(), "one start per rank");
  StreamRun run(*this, starts, held_from);
  run.run();
  if (!run.is_complete()) return std::nullopt;
  return std::move(run).result();
}

}  // namespace plimsoll
