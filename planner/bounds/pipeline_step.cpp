// Runs the actions of all stages as soon as the tensors that they wait for have arrived.
#include "planner/bounds/pipeline_step.h"

#include <algorithm>
#include <utility>

namespace plimsoll {
namespace {

constexpr Picoseconds kNotYet{-1};
constexpr std::size_t kActivations = 0, kGradients = 1;
constexpr std::array<Stream, 2> kSends = {Stream::send_next, Stream::send_previous};

}  // namespace

PipelineStep::PipelineStep(const Strategy& strategy, std::span<const StageSpans> stages,
                           std::int64_t micro_batches)
    : PipelineStep(strategy, stages, micro_batches, pipeline_cycles(strategy, micro_batches)) {}

PipelineStep::PipelineStep(const Strategy& strategy, std::span<const StageSpans> stages,
                           std::int64_t micro_batches, const PipelineCycles& cycles)
    : strategy_(strategy),
      stages_(stages),
      all_(micro_batches),
      parts_(strategy.pp * strategy.virtual_stages),
      cycles_(cycles),
      v_(is_placed_as_v(strategy.schedule)),
      slots_(strategy.send_lifetime == SendLifetime::event && !v_ ? std::size_t(strategy.send_slots)
                                                                  : 0) {
  for (const StageSpans& stage : stages) {
    double most = 1;
    bool waits = false;
    for (const ChunkSpans& chunk : stage.chunks) {
      for (const ActionSpans* action : {&chunk.forward, &chunk.backward})
        most = std::max({most, action->transfer_slowdown, action->sending_slowdown});
      waits = waits || chunk.forward.host;
    }
    host_waits_.push_back(waits);
    std::vector<std::array<TimedAction, 3>>& chunks = timed_.emplace_back();
    for (const ChunkSpans& chunk : stage.chunks)
      chunks.push_back(
          {timed(chunk.forward, most), timed(chunk.backward, most), timed(chunk.weights, most)});
  }
  order(all_ - cycles_.left_out * cycles_.micro_batches);
}

void PipelineStep::order(std::int64_t micro_batches) {
  m_ = micro_batches;
  orders_.clear();
  for (std::int64_t s = 0; s < strategy_.pp; ++s) {
    orders_.push_back(stage_order(strategy_, s, micro_batches));
  }
  records_.assign(m_ < all_ ? stages_.size() : 0, {});
}

Picoseconds PipelineStep::bound(const std::function<bool(Picoseconds)>& enough) {
  std::vector<Picoseconds> starts(stages_.size());
  Picoseconds bound;
  for (int step = 0; step < 2; ++step) {
    const std::vector<Picoseconds> ends = run(starts);
    std::optional<Picoseconds> least;
    for (std::size_t s = 0; s < ends.size(); ++s) {
      const Picoseconds advance = ends[s] - starts[s];
      least = least ? std::min(*least, advance) : advance;
    }
    bound = std::max(bound, *least);
    if (enough && enough(bound)) break;
    starts = ends;
  }
  return bound;
}

std::vector<Picoseconds> PipelineStep::run(const std::vector<Picoseconds>& starts) {
  starts_ = starts;
  run_actions();
  if (m_ < all_ && !add_cycles()) {
    order(all_);
    run_actions();
  }
  return ends();
}

bool PipelineStep::add_cycles() {
  for (std::size_t s = 0; s < records_.size(); ++s) {
    if (states_[s].next < orders_[s].size()) return false;  // too few slots: stages wait for ever
    if (host_waits_[s]) continue;
    Picoseconds issued;
    for (const ChunkSpans& chunk : stages_[s].chunks) {
      for (const ActionSpans* action : {&chunk.forward, &chunk.backward, &chunk.weights})
        issued += repeated(action->dispatch + action->send_dispatch, cycles_.micro_batches);
    }
    records_[s].issued_per_cycle = issued;
  }
  const std::optional<Picoseconds> period = rhythm(strategy_, cycles_, records_);
  if (!period) return false;
  for (std::size_t s = 0; s < states_.size(); ++s) {
    State& state = states_[s];
    const Picoseconds more = repeated(*period, cycles_.left_out);
    state.clock += more;
    state.last_began += more;
    state.reduced += more;
    const Picoseconds cycle = records_[s].issued_per_cycle.value_or(*period);
    state.issued += repeated(cycle, cycles_.left_out);
  }
  return true;
}

void PipelineStep::run_actions() {
  states_.assign(stages_.size(), {});
  for (std::size_t s = 0; s < states_.size(); ++s) {
    State& state = states_[s];
    for (Transfers& transfers : state.transfers) {
      transfers.sent.reserve(orders_[s].size());
      transfers.sends.reserve(orders_[s].size());
    }
    state.clock = state.clock_before = state.reduced = state.issued = starts_[s];
    for (Transfers& transfers : state.transfers) transfers.received = kLongAgo;
  }
  for (StageRecord& record : records_) record.clear();
  for (Border& border : borders_) {
    border.written.assign(std::size_t(parts_ * m_), kNotYet);
    border.arrived.assign(std::size_t(parts_ * m_), kNotYet);
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < states_.size(); ++s) moved = advance(s) || moved;
  }
}

bool PipelineStep::advance(std::size_t s) {
  bool moved = false;
  State& state = states_[s];
  while (state.next < orders_[s].size() && act(s, orders_[s][state.next])) {
    ++state.next;
    moved = true;
  }
  return moved;
}

PipelineStep::TimedAction PipelineStep::timed(const ActionSpans& spans, double most_slowdown) {
  return {spans, KernelDelays::loss_beside(spans.transfer, spans.transfer_slowdown),
          KernelDelays::loss_beside(spans.sending, spans.sending_slowdown),
          to_picoseconds(spans.first_computes.seconds() * (most_slowdown - 1))};
}

/// Returns when the slot for the next tensor that a stage sends is free; kNotYet where that is not
/// known.
Picoseconds PipelineStep::slot_free(std::size_t s, std::size_t direction) const {
  const std::vector<std::size_t>& sent = states_[s].transfers[direction].sent;
  if (slots_ == 0 || sent.size() < slots_) return kLongAgo;
  return borders_[direction].arrived[sent[sent.size() - slots_]];
}

Picoseconds PipelineStep::posted(std::size_t s, const ActionSpans& action) const {
  const State& state = states_[s];
  if (!stages_[s].receives_ahead) return state.issued + action.receive_dispatch;
  const std::size_t next = state.next + 1;
  if (next == orders_[s].size()) return state.issued;
  return state.issued + timed(s, orders_[s][next]).spans.receive_dispatch;
}

/// Returns the time that an action's kernels lose to transfers beside them. Sends run beside later
/// actions until their slot is needed again. A receive posted ahead runs beside the action before
/// the one that waits for it.
Picoseconds PipelineStep::delay(std::size_t s, const ActionSpans& spans, std::size_t direction) {
  constexpr Stream kReceives = Stream::recv_previous;  // any: all are waited for in order
  State& state = states_[s];
  if (const auto received = std::exchange(state.received_ahead, std::nullopt))
    state.delays.wait_for(kReceives, *received);
  const std::vector<Action>& order = orders_[s];
  if (stages_[s].receives_ahead && state.next + 1 < order.size()) {
    const TimedAction& next = timed(s, order[state.next + 1]);
    if (next.spans.receives) {
      state.received_ahead = state.communications++;
      state.delays.add(kReceives, *state.received_ahead, next.transfer);
    }
  }
  const std::vector<std::size_t>& sends = state.transfers[direction].sends;
  if (spans.sends && slots_ > 0 && sends.size() >= slots_)
    state.delays.wait_for(kSends[direction], sends[sends.size() - slots_]);
  return state.delays.compute(spans.computes);
}

bool PipelineStep::act(std::size_t s, const Action& action) {
  State& state = states_[s];
  const TimedAction& own = timed(s, action);
  const ActionSpans& spans = own.spans;
  const Picoseconds post = stages_[s].post;
  const bool forward = action.kind == ActionKind::forward;
  const std::size_t direction = forward ? kActivations : kGradients;
  const std::int64_t part =
      part_of(strategy_.schedule, std::int64_t(stages_.size()), std::int64_t(s), action.chunk);
  Border& border = borders_[direction];
  const Picoseconds slot = spans.sends ? slot_free(s, direction) : kLongAgo;
  if (slot == kNotYet) return false;
  Picoseconds begin = state.clock;
  if (spans.receives) {
    const std::size_t from = index(forward ? part - 1 : part + 1, action.micro_batch);
    const Picoseconds written = border.written[from];
    if (written == kNotYet) return false;
    // Posted ahead, a host may do it while it waits for something else.
    if (!stages_[s].receives_ahead) begin += post;
    // Posted by both, behind the transfer before it on the same streams. In a V a receive may be
    // posted any time before, and the streams carry both directions: they count as idle.
    Picoseconds& received = state.transfers[direction].received;
    const Picoseconds posted = stages_[s].receives_ahead ? state.clock_before : begin;
    received = (v_ ? written : std::max({written, posted, received})) + spans.transfer;
    border.arrived[from] = received;
    begin = std::max(begin, received + spans.complete);
  }
  // Delays before the first call pass while that call waits for the tensor that it receives.
  const Picoseconds longer = delay(s, spans, direction);
  const Picoseconds before = std::min(longer, own.most_before);
  begin = std::max(begin, state.clock + before);
  state.last_began = begin;
  state.clock_before = state.clock;
  Picoseconds end = std::max(begin + spans.span + (longer - before), slot + spans.last);
  // The last block of a chunk waits for the last gather, and gradients are reduced behind the last
  // micro-batch's backward.
  const ChunkSpans& chunk = stages_[s].chunks[std::size_t(action.chunk)];
  if (forward && action.micro_batch == 0 && stages_[s].gathers_ahead)
    end = std::max(end, starts_[s] + chunk.gathered + spans.last);
  if (!forward && action.micro_batch + 1 == m_)
    state.reduced = std::max(state.reduced, begin + chunk.reduced);
  Picoseconds sent = end - spans.last + spans.sent;
  if (spans.host) {
    const Picoseconds issued = posted(s, spans);
    sent = std::max({sent, after(begin, spans.until_last->computes) + spans.sent,
                     after(issued, spans.until_last->follows) + spans.sent});
    end = std::max({end, after(begin, spans.host->computes), after(issued, spans.host->follows)});
    state.issued = std::max(after(issued, spans.host->issued), after(begin, spans.host->waited));
  } else {
    state.issued += spans.dispatch;
  }
  state.clock = std::max(end, state.issued);
  if (!records_.empty()) {
    const Picoseconds received =
        spans.receives ? state.transfers[direction].received : state.last_began;
    StageRecord& record = records_[s];
    record.actions.push_back(
        {begin, end, received, state.clock, host_waits_[s] ? state.issued : state.clock});
    const std::int64_t in_cycles =
        std::int64_t(state.next) + 1 - cycles_.first_action(strategy_, std::int64_t(s));
    if (in_cycles > 0 && in_cycles % cycles_.actions == 0)
      record.lost.push_back(state.delays.lost());
  }
  if (!spans.sends) return true;
  const std::size_t to = index(part, action.micro_batch);
  border.written[to] = post > Picoseconds() ? state.clock + post : sent;
  state.transfers[direction].sent.push_back(to);
  if (post == Picoseconds()) {
    state.transfers[direction].sends.push_back(state.communications);
    state.delays.add(kSends[direction], state.communications++, own.sending);
  }
  state.issued += spans.send_dispatch;
  state.clock += post;
  return true;
}

std::vector<Picoseconds> PipelineStep::ends() const {
  std::vector<Picoseconds> ends;
  for (std::size_t s = 0; s < states_.size(); ++s) {
    const State& state = states_[s];
    const Picoseconds gathers =
        stages_[s].gathers_ahead ? Picoseconds() : stages_[s].chunks.back().gathered;
    ends.push_back(std::max({state.clock, state.issued, state.reduced + gathers}));
  }
  return ends;
}

}  // namespace plimsoll
