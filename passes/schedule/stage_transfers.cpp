// Calls send, receive and free boundary tensors.
#include "passes/schedule/stage_transfers.h"

#include <fmt/format.h>

namespace plimsoll {

namespace {

Phase phase_of(Direction direction) {
  return direction == Direction::activation ? Phase::forward : Phase::backward;
}

}  // namespace

/// One stream per directed peer; `next` holds the stage after this one, round the pipeline. The
/// last stage of a V has none after it, and the partner takes its place there.
RoutineId StageTransfers::routine(OpKind kind, Direction direction, std::int64_t stage_offset,
                                  Bytes bytes) {
  for (const SharedRoutine& known : routines_) {
    if (known.kind == kind && known.direction == direction && known.stage_offset == stage_offset &&
        known.bytes == bytes)
      return known.id;
  }
  const bool next = stage_offset >= 0, sends = kind == OpKind::send;
  const Stream stream = sends ? (next ? Stream::send_next : Stream::send_previous)
                              : (next ? Stream::recv_next : Stream::recv_previous);
  const RoutineId id = build_.payload_routine(
      fmt::format("{}.{}", to_text(kind), to_text(stream)), kind, phase_of(direction), stream,
      TensorRole::communication, context_.job.precision, bytes, TransferParams{stage_offset});
  routines_.push_back({kind, direction, stage_offset, bytes, id});
  return id;
}

void StageTransfers::expect(const Incoming& incoming) {
  expected_[incoming.stage_offset].push_back(incoming);
}

void StageTransfers::post(const Incoming& incoming) {
  const auto is_posted = [&] {
    return queue(incoming.direction).posted.contains(Key{incoming.chunk, incoming.micro_batch});
  };
  std::deque<Incoming>& expected = expected_[incoming.stage_offset];
  for (; !is_posted() && !expected.empty(); expected.pop_front()) post_now(expected.front());
  if (!is_posted()) post_now(incoming);
}

void StageTransfers::post_now(const Incoming& incoming) {
  const bool activation = incoming.direction == Direction::activation;
  const BufferId payload =
      build_.add_buffer(activation ? "received_activation" : "received_gradient",
                        TensorRole::communication, incoming.bytes, build_.next_call());
  const RoutineId receives =
      routine(OpKind::recv, incoming.direction, incoming.stage_offset, sent_bytes(payload));
  const std::size_t call = build_.add_call(receives, {}, incoming.micro_batch, {sent_part(payload)},
                                           {{build_.last_compute(), {}}});
  queue(incoming.direction)
      .posted.emplace(Key{incoming.chunk, incoming.micro_batch}, Received{payload, {call, {}}});
}

StageTransfers::Received StageTransfers::receive(const Incoming& incoming) {
  post(incoming);
  const auto found =
      queue(incoming.direction).posted.extract(Key{incoming.chunk, incoming.micro_batch});
  const Received received = found.mapped();
  build_.extend(received.payload, build_.next_call());
  if (!context_.strategy.pipeline.split_boundary) return received;
  const RoutineId gather = build_.payload_routine("all_gather.boundary", OpKind::all_gather,
                                                  phase_of(incoming.direction), Stream::mp,
                                                  TensorRole::communication, context_.job.precision,
                                                  incoming.bytes, CollectiveParams{{{Axis::mp}}});
  const std::size_t gathered = build_.add_call(gather, {}, incoming.micro_batch,
                                               {{received.payload, {}, {}}}, {received.arrived});
  return {received.payload, {gathered, {}}};
}

/// The part of a boundary tensor that one mp rank sends, where all of them hold it.
Bytes StageTransfers::sent_bytes(BufferId payload) {
  const std::int64_t parts = context_.strategy.pipeline.split_boundary ? context_.strategy.mp : 1;
  return Bytes(build_.buffer(payload).bytes.count() / parts);
}

Binding StageTransfers::sent_part(BufferId payload) {
  if (!context_.strategy.pipeline.split_boundary) return {payload, {}, {}};
  return {payload, {}, sent_bytes(payload), Axis::mp};
}

void StageTransfers::take_slot(Direction direction) {
  const auto slots = std::size_t(context_.strategy.pipeline.send_slots);
  const std::vector<Sent>& sent = queue(direction).sent;
  if (context_.strategy.pipeline.send_lifetime != SendLifetime::event || sent.size() < slots)
    return;
  due_.emplace_back(direction, sent.size() - slots);
}

void StageTransfers::send(Direction direction, const Action& action, std::int64_t stage_offset,
                          BufferId payload, const std::vector<Wait>& waits) {
  const RoutineId sends = routine(OpKind::send, direction, stage_offset, sent_bytes(payload));
  const std::size_t call =
      build_.add_call(sends, {}, action.micro_batch, {sent_part(payload)}, waits);
  build_.extend(payload, call + 1);
  Queue& sent = queue(direction);
  if (context_.strategy.pipeline.send_lifetime != SendLifetime::event) {
    sent.index[{action.chunk, action.micro_batch}] = sent.sent.size();
  }
  sent.sent.push_back({call, payload, true});
}

void StageTransfers::make_due(Direction direction, const Key& key) {
  const auto& index = queue(direction).index;
  if (const auto found = index.find(key); found != index.end()) {
    due_.emplace_back(direction, found->second);
  }
}

void StageTransfers::gradient_is_received(const Action& action) {
  if (context_.strategy.pipeline.send_lifetime == SendLifetime::event) return;
  make_due(Direction::activation, {action.chunk, action.micro_batch});
}

void StageTransfers::before_backward(const Action& action, bool steady) {
  if (context_.strategy.pipeline.send_lifetime != SendLifetime::published || !steady) return;
  make_due(Direction::gradient, {action.chunk, action.micro_batch - 2});
}

void StageTransfers::make_excess_due() {
  const auto slots = std::size_t(context_.strategy.pipeline.send_slots);
  if (context_.strategy.pipeline.send_lifetime != SendLifetime::event) return;
  for (const Direction direction : {Direction::activation, Direction::gradient}) {
    const std::vector<Sent>& sent = queue(direction).sent;
    for (std::size_t i = 0; i + slots < sent.size(); ++i) {
      if (sent[i].open) due_.emplace_back(direction, i);
    }
  }
}

std::vector<Wait> StageTransfers::free_due() {
  std::vector<Wait> waits;
  if (std::exchange(excess_, false)) make_excess_due();
  for (const auto& [direction, index] : std::exchange(due_, {})) {
    Sent& sent = queue(direction).sent[index];
    if (!sent.open) continue;
    sent.open = false;
    build_.extend(sent.payload, build_.next_call());
    waits.push_back({sent.call, {}});
  }
  return waits;
}

void StageTransfers::finish() {
  for (const Queue& queue : queues_) {
    for (const Sent& sent : queue.sent) {
      if (sent.open) build_.extend(sent.payload, build_.next_call());
    }
  }
}

}  // namespace plimsoll
