// Works through the queues of a StreamEngine. A queue goes on until it waits for an event that has
// not fired; it is then blocked until the event fires.
#include "simulator/engine/stream_run.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};
/// As std::max, which takes references and so makes compilers store both values.
Picoseconds later(Picoseconds a, Picoseconds b) { return a < b ? b : a; }

}  // namespace

StreamRun::StreamRun(const StreamEngine& engine) : engine_(&engine) {
  inputs_.resize(engine.most_inputs_);
  rows_.resize(engine.most_rows_);
  lay_out_rendezvous();
}

void StreamRun::lay_out_rendezvous() {
  std::vector<std::uint32_t> numbers(engine_->ranks_.size() * kMostLinks, kNone);
  for (const StreamEngine::Rendezvous& known : engine_->rendezvous_) {
    Rendezvous& rendezvous = rendezvous_.emplace_back();
    rendezvous.participants = known.participants;
    rendezvous.duration = known.duration;
    rendezvous.latency = std::min(known.latency, known.duration);
    rendezvous.first_link = std::uint32_t(links_.size());
    for (std::uint32_t use = known.links; use != kNone; use = engine_->link_uses_[use].next) {
      std::uint32_t& number = numbers[engine_->link_uses_[use].link];
      if (number == kNone) number = std::uint32_t(link_count_++);
      links_.push_back(number);
    }
    rendezvous.last_link = std::uint32_t(links_.size());
  }
}

void StreamRun::reset(std::span<const Picoseconds> starts, std::span<const Event> cycles_from,
                      StreamEngine::Record record) {
  starts_ = starts;
  cycles_from_ = cycles_from;
  records_all_ = record == StreamEngine::Record::all;
  result_.fired.resize(engine_->events_);
  has_fired_.assign(engine_->events_, false);
  result_.posted.resize(records_all_ ? engine_->events_ : 0);
  result_.begin.resize(records_all_ ? engine_->events_ : 0);
  result_.host_bound_until = {};
  clocks_.resize(engine_->queues_.size());
  for (std::size_t queue = 0; queue < clocks_.size(); ++queue)
    clocks_[queue] = starts[engine_->queues_[queue].rank];
  delayed_.assign(records_all_ ? engine_->queues_.size() : 0, {});
  delayed_in_op_ = delayed_;
  queues_.assign(engine_->queues_.size(), {});
  for (std::size_t q = 0; q < queues_.size(); ++q) {
    const StreamEngine::Queue& queue = engine_->queues_[q];
    queues_[q].next = queue.entries.data();
    queues_[q].end = queue.entries.data() + queue.entries.size();
    queues_[q].waits = queue.waits.data();
    queues_[q].rank = queue.rank;
    queues_[q].first = engine_->ranks_[queue.rank].first;
  }
  blocked_.resize(engine_->queues_.size());
  blocked_count_.assign(engine_->ranks_.size(), 0);
  runnable_.clear();
  if (link_count_ > 0) shared_.emplace(link_count_);
  if (is_clean_) return;
  open_ = 0;
  for (Rendezvous& rendezvous : rendezvous_) {
    rendezvous.arrived = 0;
    rendezvous.last = rendezvous.if_issued = {};
  }
}

void StreamRun::run(const StreamEngine& engine, std::span<const Picoseconds> starts,
                    std::span<const Event> cycles_from, StreamEngine::Record record) {
  engine_ = &engine;
  reset(starts, cycles_from, record);
  for (std::uint32_t queue = 0; queue < queues_.size(); ++queue) runnable_.push_back(queue);
  advance_all();
  while (const auto end = shared_ ? shared_->next() : std::nullopt) {
    complete(end->communication, end->time);
    advance_all();
  }
  is_clean_ = is_complete();
}

bool StreamRun::is_complete() const {
  for (std::size_t queue = 0; queue < queues_.size(); ++queue) {
    if (queues_[queue].next != queues_[queue].end) return false;
  }
  return open_ == 0;
}

void StreamRun::require_complete() const {
  for (std::size_t queue = 0; queue < queues_.size(); ++queue) {
    INVARIANT(queues_[queue].next == queues_[queue].end,
              "rank " + std::to_string(engine_->queues_[queue].rank) + " never gets past entry " +
                  std::to_string(queues_[queue].next - engine_->queues_[queue].entries.data()) +
                  " of its queue " +
                  std::to_string(queue - engine_->ranks_[engine_->queues_[queue].rank].first));
  }
  INVARIANT(open_ == 0, "a rendezvous never completes");
}

const StreamEngine::Result& StreamRun::result() {
  result_.host_end.clear();
  result_.rank_end.clear();
  for (std::size_t r = 0; r < engine_->ranks_.size(); ++r) {
    const StreamEngine::Rank& rank = engine_->ranks_[r];
    Picoseconds end = host_clock(r, rank.after) + rank.issued;
    result_.host_end.push_back(end);
    for (std::size_t s = 0; s < rank.queue_of_stream.size(); ++s) {
      end = std::max(end, clocks_[rank.first + s]);
    }
    result_.rank_end.push_back(end);
  }
  return result_;
}

void StreamRun::advance_all() {
  while (!runnable_.empty()) {
    const std::uint32_t queue = runnable_.back();
    runnable_.pop_back();
    advance(queue);
  }
}

/// Works through one queue until it blocks, arrives at a rendezvous or is through.
void StreamRun::advance(std::uint32_t index) {
  QueueState& state = queues_[index];
  while (state.next != state.end) {
    const Entry& entry = *state.next;
    if (!wait_for_all(index, state, entry)) return;
    ++state.next;
    const std::uint32_t clock = state.first + entry.stream;
    if (entry.kind >= StreamEngine::Kind::delay_before_op) {
      run_delay(entry, clock);
      continue;
    }
    const Picoseconds issued = host_clock(state.rank, entry.after) + entry.issued;
    const Picoseconds awaited = std::exchange(state.awaited, {});
    if (entry.kind == StreamEngine::Kind::call) {
      run_call(entry, state, issued, awaited);
      continue;
    }
    const Picoseconds free = later(awaited, clocks_[clock]);
    if (records_all_) record_begin(entry, clock, issued, awaited);
    if (entry.kind == StreamEngine::Kind::local) {
      run_op(entry, state, issued, free);
      continue;
    }
    const Picoseconds ready = later(issued, free);
    arrive(index, entry, ready, counts_as_host_bound(state.rank, entry) ? free : ready);
    return;
  }
}

void StreamRun::run_delay(const Entry& entry, std::uint32_t clock) {
  const Picoseconds delay(entry.value);
  clocks_[clock] += delay;
  if (!records_all_) return;
  delayed_[clock] += delay;
  if (entry.kind == StreamEngine::Kind::delay_in_op) delayed_in_op_[clock] += delay;
}

/// Records when an op was ready and when it begins. complete() corrects the begin of a rendezvous.
void StreamRun::record_begin(const Entry& entry, std::uint32_t clock, Picoseconds issued,
                             Picoseconds awaited) {
  const auto without = [&](std::vector<Picoseconds>& delays) {
    const Picoseconds delay = std::exchange(delays[clock], {});
    return later(issued, later(awaited, clocks_[clock] - delay));
  };
  result_.posted[entry.event] = without(delayed_);
  result_.begin[entry.event] = without(delayed_in_op_);
}

bool StreamRun::wait_for_all(std::uint32_t index, QueueState& state, const Entry& entry) {
  if (entry.after != kNone && !has_fired_[entry.after]) {
    return block(index, state, entry.after);
  }
  for (; state.waits_done < entry.last_wait; ++state.waits_done) {
    const Event event = state.waits[state.waits_done];
    if (!has_fired_[event]) return block(index, state, event);
    state.awaited = later(state.awaited, result_.fired[event]);
  }
  return true;
}

bool StreamRun::block(std::uint32_t queue, const QueueState& state, Event event) {
  blocked_[state.first + blocked_count_[state.rank]++] = {event, queue};
  return false;
}

void StreamRun::fire(const QueueState& queue, Event event, Picoseconds time) {
  result_.fired[event] = time;
  has_fired_[event] = true;
  Blocked* const blocked = blocked_.data() + queue.first;
  std::uint32_t& count = blocked_count_[queue.rank];
  for (std::uint32_t i = 0; i < count;) {
    if (blocked[i].event != event) {
      ++i;
      continue;
    }
    runnable_.push_back(blocked[i].queue);
    blocked[i] = blocked[--count];
  }
}

void StreamRun::run_op(const Entry& entry, const QueueState& queue, Picoseconds issued,
                       Picoseconds free) {
  const Picoseconds begin = later(issued, free);
  const Picoseconds end = begin + Picoseconds(entry.value);
  clocks_[queue.first + entry.stream] = end;
  if (issued > free && counts_as_host_bound(queue.rank, entry)) note_host_bound(end);
  fire(queue, entry.event, end);
}

void StreamRun::run_call(const Entry& entry, const QueueState& queue, Picoseconds issued,
                         Picoseconds awaited) {
  const RoutineMap& map = *entry.map;
  const std::uint32_t first = queue.first;
  Picoseconds* const clocks = clocks_.data() + first;
  const std::size_t streams = map.streams.size();
  inputs_[RoutineMap::kIssued] = issued;
  inputs_[RoutineMap::kAwaited] = awaited;
  for (std::size_t s = 0; s < streams; ++s)
    inputs_[RoutineMap::kClocks + s] = clocks[map.streams[s]];
  const bool host_bound = apply(map, inputs_.data(), rows_.data());
  for (std::size_t s = 0; s < streams; ++s) clocks[map.streams[s]] = rows_[s];
  for (std::size_t s = 0; s < streams && records_all_; ++s) {
    const std::size_t clock = first + map.streams[s];
    delayed_[clock] = delayed_in_op_[clock] = {};
  }
  for (std::uint32_t e = 0; e < map.events; ++e) fire(queue, entry.event + e, rows_[streams + e]);
  if (host_bound && counts_as_host_bound(queue.rank, entry)) {
    note_host_bound(
        *std::max_element(rows_.begin(), rows_.begin() + std::ptrdiff_t(streams + map.events)));
  }
}

/// The last participant to arrive completes the rendezvous, or begins its use of links.
void StreamRun::arrive(std::uint32_t queue, const Entry& entry, Picoseconds time,
                       Picoseconds if_issued) {
  const auto number = std::uint32_t(entry.value);
  Rendezvous& rendezvous = rendezvous_[number];
  QueueState& state = queues_[queue];
  state.event = entry.event;
  state.next_arrived = rendezvous.arrived == 0 ? kNone : rendezvous.first_arrived;
  rendezvous.first_arrived = queue;
  rendezvous.last = later(rendezvous.last, time);
  rendezvous.if_issued = later(rendezvous.if_issued, if_issued);
  ++open_;
  if (++rendezvous.arrived < rendezvous.participants) return;
  const std::uint32_t links = rendezvous.last_link - rendezvous.first_link;
  if (links == 0) return complete(number, rendezvous.last + rendezvous.duration);
  shared_->begin(number, rendezvous.last + rendezvous.latency,
                 rendezvous.duration - rendezvous.latency,
                 std::span(links_).subspan(rendezvous.first_link, links));
}

/// Ends the rendezvous for all its participants.
void StreamRun::complete(std::uint32_t number, Picoseconds end) {
  Rendezvous& rendezvous = rendezvous_[number];
  if (rendezvous.last > rendezvous.if_issued) note_host_bound(end);
  for (std::uint32_t queue = rendezvous.first_arrived; queue != kNone;
       queue = queues_[queue].next_arrived) {
    const Event event = queues_[queue].event;
    if (records_all_) result_.begin[event] = rendezvous.last;
    clocks_[queue] = end;
    runnable_.push_back(queue);
    fire(queues_[queue], event, end);
  }
  open_ -= rendezvous.arrived;
  rendezvous.arrived = 0;
  rendezvous.last = rendezvous.if_issued = {};
}

/// Whether the host issues the entry before the rank's cycles begin (Result::host_bound_until).
bool StreamRun::counts_as_host_bound(std::uint32_t rank, const Entry& entry) const {
  return entry.after == kNone || (rank < cycles_from_.size() && entry.after < cycles_from_[rank]);
}

void StreamRun::note_host_bound(Picoseconds until) {
  result_.host_bound_until = later(result_.host_bound_until, until);
}

Picoseconds StreamRun::host_clock(std::size_t rank, Event after) const {
  return after == kNone ? starts_[rank] : result_.fired[after];
}

}  // namespace plimsoll
