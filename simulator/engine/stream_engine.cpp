#include "simulator/engine/stream_engine.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "simulator/engine/stream_run.h"

namespace plimsoll {

StreamEngine::StreamEngine() = default;
StreamEngine::~StreamEngine() = default;
StreamEngine::StreamEngine(StreamEngine&&) noexcept = default;
StreamEngine& StreamEngine::operator=(StreamEngine&&) noexcept = default;

void StreamEngine::add_rank(std::vector<std::uint32_t> lane_of_stream) {
  INVARIANT(!run_, "nothing is added after a run");
  Rank rank;
  lane_of_stream.push_back(std::uint32_t(lane_of_stream.size()));
  rank.first = std::uint32_t(lanes_.size());
  for (std::size_t s = 0; s < lane_of_stream.size(); ++s) {
    lanes_.emplace_back().rank = std::uint32_t(ranks_.size());
  }
  rank.lane_of_stream = std::move(lane_of_stream);
  ranks_.push_back(std::move(rank));
}

StreamEngine::Task& StreamEngine::add_task(std::uint32_t stream, std::span<const Event> waits) {
  INVARIANT(!run_, "nothing is added after a run");
  INVARIANT(events_ < kNone, "too many events for one simulation");
  const Rank& rank = ranks_.back();
  Lane& lane = lanes_[rank.first + rank.lane_of_stream[stream]];
  for (Event event : waits) {
    INVARIANT(event < events_, "a wait for a later event");
    lane.waits.push_back(event);
  }
  Task& task = lane.tasks.emplace_back();
  task.stream = std::uint16_t(stream);
  task.last_wait = std::uint32_t(lane.waits.size());
  task.event = events_;
  task.issued = rank.issued;
  task.since = rank.since;
  return task;
}

StreamEngine::Event StreamEngine::add_op(const Op& op, std::span<const Event> waits) {
  INVARIANT(op.dispatch.count() > 0, "the dispatch time of an op must be positive");
  Task& task = add_task(op.stream, waits);
  task.issued += op.dispatch;
  Rank& rank = ranks_.back();
  rank.issued = task.issued;
  task.what = op.duration.count();
  if (op.rendezvous || op.link_use.links != 0) {
    task.kind = Kind::arrival;
    task.what = std::int64_t(participants_.size());
    INVARIANT(rank.lane_of_stream[op.stream] == op.stream, "a rendezvous on a lane of several");
    const std::uint32_t number = meeting_of(op);
    participants_.push_back({number, meetings_[number].first, rank.first + op.stream, events_});
    meetings_[number].first = std::uint32_t(task.what);
  }
  return events_++;
}

std::uint32_t& StreamEngine::number_of(std::uint64_t rendezvous) {
  const std::size_t channel = rendezvous >> 32, meeting = std::uint32_t(rendezvous);
  if (channel >= numbers_.size()) numbers_.resize(channel + 1);
  std::vector<std::uint32_t>& numbers = numbers_[channel];
  if (meeting >= numbers.size()) numbers.resize(meeting + 1, kNone);
  return numbers[meeting];
}

/// A task that shares links is one, too, if it is alone.
std::uint32_t StreamEngine::meeting_of(const Op& op) {
  std::uint32_t alone = kNone;
  std::uint32_t& number = op.rendezvous ? number_of(*op.rendezvous) : alone;
  if (number == kNone) {
    number = std::uint32_t(meetings_.size());
    meetings_.emplace_back();
  }
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
  task.kind = Kind::call;
  task.map = &map;
  most_inputs_ = std::max(most_inputs_, map.inputs());
  most_rows_ = std::max(most_rows_, map.rows.size());
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
  add_task(std::uint32_t(rank.lane_of_stream.size() - 1), waits).what = cost.count();
  rank.since = events_;
  rank.issued = {};
  return events_++;
}

void StreamEngine::add_delay(std::uint32_t stream, Picoseconds delay, bool of_next) {
  if (delay <= Picoseconds(0)) return;
  const Kind kind = of_next ? Kind::delay_of_next : Kind::delay;
  const Rank& rank = ranks_.back();
  std::vector<Task>& tasks = lanes_[rank.first + rank.lane_of_stream[stream]].tasks;
  if (!tasks.empty() && tasks.back().kind == kind && tasks.back().stream == stream) {
    tasks.back().what += delay.count();
    return;
  }
  Task& task = add_task(stream, {});
  task.kind = kind;
  task.what = delay.count();
  task.since = kNone;
}

StreamEngine::HostTime StreamEngine::host_time() const {
  const Rank& rank = ranks_.back();
  if (rank.since == kNone) return {std::nullopt, rank.issued};
  return {rank.since, rank.issued};
}

StreamRun& StreamEngine::state_for(std::span<const Picoseconds> starts) {
  INVARIANT(starts.size() == ranks_.size(), "one start per rank");
  if (!run_) run_ = std::make_unique<StreamRun>(*this);
  return *run_;
}

const StreamEngine::Result& StreamEngine::run(std::span<const Picoseconds> starts, Keep keep) {
  StreamRun& run = state_for(starts);
  run.run(*this, starts, {}, keep);
  run.require_complete();
  return run.result();
}

const StreamEngine::Result* StreamEngine::try_run(std::span<const Picoseconds> starts,
                                                  std::span<const Event> held_from) {
  StreamRun& run = state_for(starts);
  run.run(*this, starts, held_from, Keep::ends);
  return run.is_complete() ? &run.result() : nullptr;
}

}  // namespace plimsoll
