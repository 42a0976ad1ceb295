// Lays the actions of all stages out in the order in which their hosts issue them.
#include "planner/bounds/pipeline_step.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>

#include "passes/strategy/pipeline_order.h"
#include "planner/bounds/shorter_step.h"
#include "simulator/ranks/kernel_delays.h"

namespace plimsoll {
namespace {

using Event = StreamEngine::Event;

/// Streams of a rank. Transfers go on one stream for each direction and end. In a V they share
/// streams in an order that is not followed, so transfers of each chunk have streams to themselves.
constexpr std::uint32_t kCompute = 0, kGathers = 1, kReductions = 2, kTransfers = 3;
constexpr std::uint32_t kStreamsOfChunk = 4;

/// The longest paths to a row of a map, from each of its inputs that has one. A path of HostPaths
/// before time 0 is none.
struct RowPaths {
  std::optional<Picoseconds> issued, awaited, clock;
};

void add_rows(RoutineMap& map, const RowPaths& paths, std::initializer_list<std::uint32_t> rows) {
  const std::array<std::optional<Picoseconds>, 3> by_input = {paths.issued, paths.awaited,
                                                              paths.clock};
  for (std::uint32_t input = 0; input < by_input.size(); ++input) {
    if (by_input[input] >= Picoseconds()) map.terms.push_back({input, *by_input[input]});
  }
  for (const std::uint32_t row : rows) map.rows.push_back({row, {}});
  map.bundles.push_back({std::uint32_t(map.terms.size()), std::uint32_t(map.rows.size())});
}

/// Returns the map of calls on one stream, of which others await the end.
RoutineMap map_of(std::uint32_t stream, const RowPaths& end) {
  RoutineMap map;
  map.streams = {stream};
  map.events = 1;
  add_rows(map, end, {0, 1});
  return map;
}

/// Block calls in a row, by their spans or by the host's paths through them.
struct BlockCalls {
  Picoseconds span, dispatch;
  Picoseconds complete;  ///< from the awaited event until the first call begins
  std::optional<Picoseconds> written;
  std::optional<HostPaths> host;
};

RoutineMap map_of(const BlockCalls& calls) {
  const HostPaths paths = calls.host.value_or(no_call());
  const Picoseconds span = std::max(calls.span, paths.computes);
  RoutineMap map = map_of(kCompute, {std::max({calls.span, calls.dispatch, paths.follows}),
                                     span + calls.complete, span});
  map.dispatch = calls.dispatch;
  const auto add_event = [&](const RowPaths& end) { add_rows(map, end, {1 + map.events++}); };
  if (calls.written) add_event({*calls.written, *calls.written, *calls.written});
  if (!calls.host) return map;
  map.host_waits = true;
  add_event({paths.issued, after(calls.complete, paths.waited), paths.waited});
  return map;
}

/// An action as two calls, of which the last one sends on.
struct ActionMaps {
  const RoutineMap *until_last = nullptr, *last = nullptr;
  KernelDelays::Loss transfer, sending;  ///< that kernels have beside these transfers
  Picoseconds most_before;               ///< the most that the first call loses
};

/// One stage of a step.
class StageBuilder {
 public:
  StageBuilder(StreamRanks& all, const Strategy& strategy, const StageSpans& stage,
               std::int64_t index, std::int64_t micro_batches);
  void add_step(const FewerMicroBatches& fewer);

 private:
  static std::size_t direction_of(const Action& action) {
    return action.kind == ActionKind::forward ? 0 : 1;
  }
  const ActionSpans& spans_of(const Action& action) const {
    const ChunkSpans& chunk = stage_.chunks[std::size_t(action.chunk)];
    return action.kind == ActionKind::forward           ? chunk.forward
           : action.kind == ActionKind::weight_gradient ? chunk.weights
                                                        : chunk.backward;
  }
  const ActionMaps& maps_for(const Action& action) const {
    const std::size_t kind = action.kind == ActionKind::weight_gradient ? 2 : direction_of(action);
    return maps_[std::size_t(action.chunk)][kind];
  }
  std::uint32_t stream_of(const Action& action, bool sends) const {
    const std::uint32_t first = v_ ? std::uint32_t(action.chunk) * kStreamsOfChunk : 0;
    return kTransfers + first + 2 * std::uint32_t(direction_of(action)) + (sends ? 1 : 0);
  }
  /// Returns the part of the model on which an action works.
  std::int64_t part(const Action& action) const {
    return part_of(strategy_.schedule, strategy_.pp, index_, action.chunk);
  }
  /// Returns the number of a micro-batch's transfer into a part of the model.
  std::uint64_t transfer_into(std::int64_t part, const Action& action) const {
    const auto parts = std::uint64_t(strategy_.pp * strategy_.pipeline.virtual_stages);
    return (direction_of(action) * parts + std::uint64_t(part)) << 32 |
           std::uint64_t(action.micro_batch);
  }
  const RoutineMap* keep(RoutineMap map) { return &all_.maps.emplace_back(std::move(map)); }
  /// Returns a list of an event, or of none.
  static std::span<const Event> list(const std::optional<Event>& event) {
    return event ? std::span(&*event, 1) : std::span<const Event>();
  }

  ActionMaps maps_of(const ActionSpans& spans, double most_slowdown);
  void add_gathers();
  void receive(const Action& action);
  void receive_for(std::size_t i);
  void add_action(std::size_t i);
  Picoseconds delay(std::size_t i);

  StreamRanks& all_;
  StreamEngine& engine_;
  const Strategy& strategy_;
  const StageSpans& stage_;
  const std::int64_t index_, micro_batches_;
  const std::vector<Action> order_;
  const bool v_;                                 ///< chunks are placed as a V
  const std::size_t slots_;                      ///< 0: sends wait for none
  std::vector<std::array<ActionMaps, 3>> maps_;  ///< by chunk: forward, backward, weight gradients
  std::vector<const RoutineMap*> reductions_;    ///< by chunk
  std::vector<Event> gathered_;                  ///< by chunk
  const RoutineMap* post_ = nullptr;             ///< of a host that posts transfers between ops
  std::optional<Event> computed_;                ///< by the latest call
  std::map<std::uint64_t, Event> received_;      ///< posted, and not read yet
  std::array<std::vector<Event>, 2> sends_;      ///< by direction
  KernelDelays delays_;
};

StageBuilder::StageBuilder(StreamRanks& all, const Strategy& strategy, const StageSpans& stage,
                           std::int64_t index, std::int64_t micro_batches)
    : all_(all),
      engine_(all.engine),
      strategy_(strategy),
      stage_(stage),
      index_(index),
      micro_batches_(micro_batches),
      order_(stage_order(strategy, index, micro_batches)),
      v_(is_placed_as_v(strategy.schedule)),
      slots_(strategy.pipeline.send_lifetime == SendLifetime::event && !v_
                 ? std::size_t(strategy.pipeline.send_slots)
                 : 0) {
  std::vector<std::uint32_t> queues(kTransfers + (v_ ? 2 : 1) * kStreamsOfChunk);
  std::iota(queues.begin(), queues.end(), 0u);
  engine_.add_rank(std::move(queues));
  double most = 1;
  for (const ChunkSpans& chunk : stage_.chunks) {
    for (const ActionSpans* action : {&chunk.forward, &chunk.backward})
      most = std::max({most, action->transfer_slowdown, action->sending_slowdown});
  }
  for (const ChunkSpans& chunk : stage_.chunks) {
    maps_.push_back({maps_of(chunk.forward, most), maps_of(chunk.backward, most),
                     maps_of(chunk.weights, most)});
    reductions_.push_back(keep(map_of(kReductions, {std::nullopt, chunk.reduced, Picoseconds()})));
  }
  if (stage_.post > Picoseconds()) post_ = keep(map_of(kCompute, {{}, {}, stage_.post}));
}

ActionMaps StageBuilder::maps_of(const ActionSpans& spans, double most_slowdown) {
  // A host that waits has its dispatch in its paths. In a V receives are issued at the start.
  const Picoseconds received = v_ ? Picoseconds() : spans.receive_dispatch;
  const Picoseconds dispatch = spans.last_host ? Picoseconds() : spans.dispatch - received;
  return {keep(map_of({spans.span - spans.last, {}, spans.complete, {}, spans.until_last})),
          keep(map_of({spans.last, dispatch, {}, spans.sent, spans.last_host})),
          KernelDelays::loss_beside(spans.transfer, spans.transfer_slowdown),
          KernelDelays::loss_beside(spans.sending, spans.sending_slowdown),
          to_picoseconds(spans.first_computes.seconds() * (most_slowdown - 1))};
}

void StageBuilder::add_step(const FewerMicroBatches& fewer) {
  if (stage_.gathers_ahead) add_gathers();
  for (const Action& action : order_) {
    if (v_ && spans_of(action).receives) receive(action);
  }
  RepeatedActions cycles;
  if (fewer.cycles_left_out > 0) {
    cycles = repeated_actions(order_, micro_batches_, fewer.micro_batches_per_cycle);
    if (cycles.count < std::size_t(cycles_shown(strategy_.pp))) cycles = {};
    all_.may_be_shortened = all_.may_be_shortened && cycles.count > 0;
  }
  std::vector<StreamRank::CycleBegin> begins;
  for (std::size_t i = 0; i <= order_.size(); ++i) {
    if (cycles.count > 0 && i == cycles.begin(cycles.count / 2)) {
      const bool alike = delays_.leave_out(std::size_t(fewer.cycles_left_out));
      all_.may_be_shortened = alike && all_.may_be_shortened;
    }
    if (cycles.count > 0 && i == cycles.begin(begins.size()) && begins.size() <= cycles.count) {
      begins.push_back({engine_.events(), engine_.host_time()});
      delays_.begin_cycle();
    }
    if (i < order_.size()) add_action(i);
  }
  if (!stage_.gathers_ahead) {
    const Picoseconds gathers = stage_.chunks.back().gathered;
    engine_.add_call(*keep(map_of(kReductions, {{}, {}, gathers})), {});
  }
  StreamRank& rank = all_.ranks.emplace_back();
  rank.cycles = std::move(begins);
  rank.events_end = engine_.events();
}

/// Gathers the parameters of one chunk after the other.
void StageBuilder::add_gathers() {
  Picoseconds before;
  for (const ChunkSpans& chunk : stage_.chunks) {
    const Picoseconds end = std::max(before, chunk.gathered);
    gathered_.push_back(engine_.add_call(*keep(map_of(kGathers, {{}, {}, end - before})), {}));
    before = end;
  }
}

/// Posts the receive of the tensor from which an action begins.
void StageBuilder::receive(const Action& action) {
  const ActionSpans& spans = spans_of(action);
  const std::uint64_t transfer = transfer_into(part(action), action);
  const Picoseconds dispatch = v_ ? Picoseconds() : spans.receive_dispatch;
  received_[transfer] = engine_.add_op(
      {stream_of(action, false), dispatch, spans.transfer, transfer}, list(computed_));
}

/// Posts what action `i` receives, or ahead of `i` what the next one does. In a V a receive may be
/// posted any time before, and all are posted at the start.
void StageBuilder::receive_for(std::size_t i) {
  const bool receives = spans_of(order_[i]).receives, ahead = stage_.receives_ahead;
  if (receives && post_ != nullptr && !ahead) computed_ = engine_.add_call(*post_, {});
  if (v_) return;
  if (receives && (i == 0 || !ahead)) receive(order_[i]);
  if (ahead && i + 1 < order_.size() && spans_of(order_[i + 1]).receives) receive(order_[i + 1]);
}

/// Returns the time that an action's kernels lose to transfers beside them. Sends run beside later
/// actions until their slot is needed again. A receive posted ahead runs beside the action before
/// the one that waits for it.
Picoseconds StageBuilder::delay(std::size_t i) {
  constexpr Stream kReceives = Stream::recv_previous;  // any: all are waited for in order
  if (stage_.receives_ahead) {
    if (spans_of(order_[i]).receives) delays_.wait_for(kReceives, i);
    if (i + 1 < order_.size() && spans_of(order_[i + 1]).receives)
      delays_.add(kReceives, i + 1, maps_for(order_[i + 1]).transfer);
  }
  return delays_.compute(spans_of(order_[i]).computes);
}

void StageBuilder::add_action(std::size_t i) {
  constexpr std::array<Stream, 2> kSends = {Stream::send_next, Stream::send_previous};
  const Action& action = order_[i];
  const ActionSpans& spans = spans_of(action);
  const ActionMaps& maps = maps_for(action);
  const std::size_t direction = direction_of(action);
  receive_for(i);
  std::vector<Event> received, free;
  if (spans.receives)
    received.push_back(received_.extract(transfer_into(part(action), action)).mapped());
  std::vector<Event>& sends = sends_[direction];
  if (spans.sends && slots_ > 0 && sends.size() >= slots_) {
    free.push_back(sends[sends.size() - slots_]);
    delays_.wait_for(kSends[direction], sends.size() - slots_);
  }
  const bool forward = action.kind == ActionKind::forward;
  if (forward && action.micro_batch == 0 && stage_.gathers_ahead)
    free.push_back(gathered_[std::size_t(action.chunk)]);
  if (!forward && action.micro_batch + 1 == micro_batches_) {
    std::vector<Event> begins = received;
    if (computed_) begins.push_back(*computed_);
    engine_.add_call(*reductions_[std::size_t(action.chunk)], begins);
  }
  // Delays before the first call pass while that call waits for the tensor that it receives.
  const Picoseconds longer = delay(i), before = std::min(longer, maps.most_before);
  engine_.add_delay(kCompute, before, StreamEngine::Delay::before_op);
  engine_.add_call(*maps.until_last, received);
  engine_.add_delay(kCompute, longer - before, StreamEngine::Delay::before_op);
  computed_ = engine_.add_call(*maps.last, free);
  if (!spans.sends) return;
  Event written = *computed_ + 1;
  if (post_ != nullptr) {
    written = *(computed_ = engine_.add_call(*post_, {}));
  } else {
    delays_.add(kSends[direction], sends.size(), maps.sending);
  }
  const std::int64_t to = part(action) + (forward ? 1 : -1);
  sends.push_back(
      engine_.add_op({stream_of(action, true), spans.send_dispatch, {}, transfer_into(to, action)},
                     {&written, 1}));
}

StreamRanks lay_out(const Strategy& strategy, std::span<const StageSpans> stages,
                    std::int64_t micro_batches, const FewerMicroBatches& fewer) {
  StreamRanks all;
  for (std::size_t s = 0; s < stages.size(); ++s)
    StageBuilder(all, strategy, stages[s], std::int64_t(s), micro_batches).add_step(fewer);
  return all;
}

}  // namespace

PipelineStep::PipelineStep(const Strategy& strategy, std::span<const StageSpans> stages,
                           std::int64_t micro_batches, Cycles cycles)
    : strategy_(strategy), stages_(stages), micro_batches_(micro_batches) {
  if (cycles == Cycles::run_all || is_placed_as_v(strategy.schedule)) return;
  const auto fewer = fewer_micro_batches(strategy, micro_batches);
  if (!fewer) return;
  const std::int64_t few = micro_batches - fewer->cycles_left_out * fewer->micro_batches_per_cycle;
  StreamRanks all = lay_out(strategy, stages, few, *fewer);
  if (all.may_be_shortened) shortened_.emplace(std::move(all), std::size_t(fewer->cycles_left_out));
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

std::vector<Picoseconds> PipelineStep::run(std::span<const Picoseconds> starts) {
  if (shortened_) {
    if (auto ends = shortened_->run(starts)) return *std::move(ends);
    shortened_.reset();
  }
  if (!whole_) whole_ = lay_out(strategy_, stages_, micro_batches_, {});
  return whole_->engine.run(starts, StreamEngine::Record::ends).rank_end;
}

}  // namespace plimsoll
