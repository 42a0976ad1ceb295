// Calls send, receive and free boundary tensors.
#include "passes/schedule/stage_transfers.h"

#include <fmt/format.h>

namespace plimsoll {

namespace {

Phase phase_of(Direction direction) {
  return direction == Direction::activation ? Phase::forward : Phase::backward;
}

}  // namespace

/// One stream per directed peer; `next` holds the stage after this one, round the pipeline.
RoutineId StageTransfers::routine(OpKind kind, Direction direction, Bytes bytes) {
  for (const SharedRoutine& known : routines_) {
    if (known.kind == kind && known.direction == direction && known.bytes == bytes) return known.id;
  }
  const bool activation = direction == Direction::activation, sends = kind == OpKind::send;
  const std::int64_t offset = activation == sends ? 1 : -1;
  const Stream stream = sends ? (activation ? Stream::send_next : Stream::send_previous)
                              : (activation ? Stream::recv_previous : Stream::recv_next);
  const RoutineId id = build_.payload_routine(
      fmt::format("{}.{}", to_text(kind), to_text(stream)), kind, phase_of(direction), stream,
      TensorRole::communication, context_.job.precision, bytes, TransferParams{offset});
  routines_.push_back({kind, direction, bytes, id});
  return id;
}

void StageTransfers::post(const Incoming& incoming) {
  auto& posted = queue(incoming.direction).posted;
  const Key key{incoming.chunk, incoming.micro_batch};
  if (posted.contains(key)) return;
  const bool activation = incoming.direction == Direction::activation;
  const BufferId payload =
      build_.add_buffer(activation ? "received_activation" : "received_gradient",
                        TensorRole::communication, incoming.bytes, build_.next_call());
  const RoutineId receives = routine(OpKind::recv, incoming.direction, sent_bytes(payload));
  const std::size_t call = build_.add_call(receives, {}, incoming.micro_batch, {sent_part(payload)},
                                           {{build_.last_compute(), {}}});
  posted.emplace(key, Received{payload, {call, {}}});
}

StageTransfers::Received StageTransfers::receive(const Incoming& incoming) {
  post(incoming);
  const auto found =
      queue(incoming.direction).posted.extract(Key{incoming.chunk, incoming.micro_batch});
  const Received received = found.mapped();
  build_.extend(received.payload, build_.next_call());
  if (!context_.strategy.split_boundary) return received;
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
  const std::int64_t parts = context_.strategy.split_boundary ? context_.strategy.mp : 1;
  return Bytes(build_.buffer(payload).bytes.count() / parts);
}

Binding StageTransfers::sent_part(BufferId payload) {
  if (!context_.strategy.split_boundary) return {payload, {}, {}};
  return {payload, {}, sent_bytes(payload), Axis::mp};
}

void StageTransfers::take_slot(Direction direction) {
  const auto slots = std::size_t(context_.strategy.send_slots);
  const std::vector<Sent>& sent = queue(direction).sent;
  if (context_.strategy.send_lifetime != SendLifetime::event || sent.size() < slots) return;
  due_.emplace_back(direction, sent.size() - slots);
}

void StageTransfers::send(Direction direction, const Action& action, BufferId payload,
                          const Wait& produced) {
  const RoutineId sends = routine(OpKind::send, direction, sent_bytes(payload));
  const std::size_t call =
      build_.add_call(sends, {}, action.micro_batch, {sent_part(payload)}, {produced});
  build_.extend(payload, call + 1);
  Queue& sent = queue(direction);
  if (context_.strategy.send_lifetime != SendLifetime::event) {
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
  if (context_.strategy.send_lifetime == SendLifetime::event) return;
  make_due(Direction::activation, {action.chunk, action.micro_batch});
}

void StageTransfers::before_backward(const Action& action, bool steady) {
  if (context_.strategy.send_lifetime != SendLifetime::published || !steady) return;
  make_due(Direction::gradient, {action.chunk, action.micro_batch - 2});
}

std::vector<Wait> StageTransfers::free_due() {
  std::vector<Wait> waits;
  for (const auto& [direction, index] : std::exchange(due_, {})) {
    Sent& sent = queue(direction).sent[index];
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
