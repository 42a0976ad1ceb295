// Lays out what ranks issue, in queues that a StreamRun works through.
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

void StreamEngine::add_rank(std::vector<std::uint32_t> queue_of_stream) {
  INVARIANT(!run_, "nothing is added after a run");
  Rank rank;
  queue_of_stream.push_back(std::uint32_t(queue_of_stream.size()));
  rank.first = std::uint32_t(queues_.size());
  rank.first_event = events_;
  for (std::size_t s = 0; s < queue_of_stream.size(); ++s) {
    queues_.emplace_back().rank = std::uint32_t(ranks_.size());
  }
  rank.queue_of_stream = std::move(queue_of_stream);
  ranks_.push_back(std::move(rank));
}

StreamEngine::Entry& StreamEngine::add_entry(std::uint32_t stream, std::span<const Event> waits) {
  INVARIANT(!run_, "nothing is added after a run");
  INVARIANT(events_ < kNone, "too many events for one simulation");
  const Rank& rank = ranks_.back();
  Queue& queue = queues_[rank.first + rank.queue_of_stream[stream]];
  for (Event event : waits) {
    INVARIANT(event < events_, "a wait for a later event");
    INVARIANT(event >= rank.first_event, "a wait for an event of another rank");
    queue.waits.push_back(event);
  }
  Entry& entry = queue.entries.emplace_back();
  entry.stream = std::uint16_t(stream);
  entry.last_wait = std::uint32_t(queue.waits.size());
  entry.event = events_;
  entry.issued = rank.issued;
  entry.after = rank.after;
  return entry;
}

StreamEngine::Event StreamEngine::add_op(const Op& op, std::span<const Event> waits) {
  Entry& entry = add_entry(op.stream, waits);
  entry.issued += op.dispatch;
  Rank& rank = ranks_.back();
  rank.issued = entry.issued;
  entry.value = op.duration.count();
  if (op.rendezvous || op.link_use.links != 0) {
    entry.kind = Kind::rendezvous;
    INVARIANT(rank.queue_of_stream[op.stream] == op.stream,
              "a rendezvous in a queue of several streams");
    entry.value = std::int64_t(join_rendezvous(op));
  }
  return events_++;
}

std::uint32_t& StreamEngine::number_of(std::uint64_t rendezvous) {
  const std::size_t channel = rendezvous >> 32, count = std::uint32_t(rendezvous);
  if (channel >= numbers_.size()) numbers_.resize(channel + 1);
  std::vector<std::uint32_t>& numbers = numbers_[channel];
  if (count >= numbers.size()) numbers.resize(count + 1, kNone);
  return numbers[count];
}

/// Returns the number of the op's rendezvous. An op that shares links has one even where no other
/// rank takes part.
std::uint32_t StreamEngine::join_rendezvous(const Op& op) {
  std::uint32_t alone = kNone;
  std::uint32_t& number = op.rendezvous ? number_of(*op.rendezvous) : alone;
  if (number == kNone) {
    number = std::uint32_t(rendezvous_.size());
    rendezvous_.emplace_back();
  }
  Rendezvous& joined = rendezvous_[number];
  ++joined.participants;
  joined.duration = std::max(joined.duration, op.duration);
  joined.latency = std::max(joined.latency, op.link_use.latency);
  for (std::uint32_t bit = 0; bit < kMostLinks; ++bit) {
    if ((op.link_use.links >> bit & 1) == 0) continue;
    link_uses_.push_back({std::uint32_t(ranks_.size() - 1) * kMostLinks + bit, joined.links});
    joined.links = std::uint32_t(link_uses_.size() - 1);
  }
  return number;
}

StreamEngine::Event StreamEngine::add_call(const RoutineMap& map, std::span<const Event> waits) {
  Entry& entry = add_entry(map.streams.front(), waits);
  entry.kind = Kind::call;
  entry.map = &map;
  most_inputs_ = std::max(most_inputs_, map.inputs());
  most_rows_ = std::max(most_rows_, map.rows.size());
  events_ += map.events;
  Rank& rank = ranks_.back();
  rank.issued += map.dispatch;
  if (map.host_waits) {
    rank.after = events_ - 1;
    rank.issued = {};
  }
  return entry.event;
}

StreamEngine::Event StreamEngine::add_host_wait(Picoseconds cost, std::span<const Event> waits) {
  Rank& rank = ranks_.back();
  add_entry(std::uint32_t(rank.queue_of_stream.size() - 1), waits).value = cost.count();
  rank.after = events_;
  rank.issued = {};
  return events_++;
}

void StreamEngine::add_delay(std::uint32_t stream, Picoseconds delay, Delay counts) {
  if (delay <= Picoseconds(0)) return;
  const Kind kind = counts == Delay::in_op ? Kind::delay_in_op : Kind::delay_before_op;
  const Rank& rank = ranks_.back();
  std::vector<Entry>& entries = queues_[rank.first + rank.queue_of_stream[stream]].entries;
  if (!entries.empty() && entries.back().kind == kind && entries.back().stream == stream) {
    entries.back().value += delay.count();
    return;
  }
  Entry& entry = add_entry(stream, {});
  entry.kind = kind;
  entry.value = delay.count();
  entry.after = kNone;
}

StreamEngine::HostTime StreamEngine::host_time() const {
  const Rank& rank = ranks_.back();
  if (rank.after == kNone) return {std::nullopt, rank.issued};
  return {rank.after, rank.issued};
}

StreamRun& StreamEngine::state_for(std::span<const Picoseconds> starts) {
  INVARIANT(starts.size() == ranks_.size(), "one start per rank");
  if (!run_) run_ = std::make_unique<StreamRun>(*this);
  return *run_;
}

const StreamEngine::Result& StreamEngine::run(std::span<const Picoseconds> starts, Record record) {
  StreamRun& run = state_for(starts);
  run.run(*this, starts, {}, record);
  run.require_complete();
  return run.result();
}

const StreamEngine::Result* StreamEngine::try_run(std::span<const Picoseconds> starts,
                                                  std::span<const Event> cycles_from) {
  StreamRun& run = state_for(starts);
  run.run(*this, starts, cycles_from, Record::ends);
  return run.is_complete() ? &run.result() : nullptr;
}

}  // namespace plimsoll
