#include "simulator/ranks/framework_waits.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "graph/op_table.h"

namespace plimsoll {
namespace {

bool is_transfer(const Op& op) { return op.kind == OpKind::send || op.kind == OpKind::recv; }

/// Gradients of a micro-batch are zeroed, copied together, merged or reduced between the transfers
/// of one exchange: they do not end it.
bool prepares_gradients(const Routine& routine) {
  if (routine.ops.size() != 1 || routine.phase == Phase::optimizer) return false;
  const Op& op = routine.ops[0];
  return op.kind == OpKind::fill || op.kind == OpKind::coalesce || op.kind == OpKind::cast ||
         op.kind == OpKind::add || (op.stream == Stream::data && communicates(op.kind));
}

bool computes(const Routine& routine) {
  return std::any_of(routine.ops.begin(), routine.ops.end(),
                     [](const Op& op) { return op.stream == Stream::compute; });
}

bool is_send(Stream stream) {
  return stream == Stream::send_next || stream == Stream::send_previous;
}

}  // namespace

FrameworkWaits::FrameworkWaits(const Expansion& expansion) : expansion_(expansion) {
  for (const Routine& routine : expansion.program->routines) {
    Does& does = does_.emplace_back();
    does.compute = computes(routine);
    does.prepare_gradients = prepares_gradients(routine);
    for (const Op& op : routine.ops) does.streams |= 1u << std::uint32_t(op.stream);
  }
}

/// Whether the call is the first of a micro-batch's forward: what was computed before it, of the
/// Program, is something else. (Not of what was issued: calls before it may be left out.)
bool FrameworkWaits::begins_forward(std::size_t call) const {
  const Program& program = *expansion_.program;
  const Call& own = program.calls[call];
  if (!own.micro_batch || program.at(own.routine).phase != Phase::forward) return false;
  for (std::size_t c = call; c > 0; --c) {
    const Call& before = program.calls[c - 1];
    const Does& does = does_[before.routine.index()];
    if (!before.micro_batch || !does.compute || does.prepare_gradients) continue;
    return program.at(before.routine).phase != Phase::forward ||
           before.micro_batch != own.micro_batch;
  }
  return true;
}

std::vector<FrameworkWaits::Event> FrameworkWaits::before_call(std::size_t call) {
  const Does& does = does_[expansion_.program->calls[call].routine.index()];
  prepares_gradients_ = does.prepare_gradients;
  if (!does.compute || prepares_gradients_) return {};
  reads_batch_ = expansion_.host_reads_batch && begins_forward(call);
  return std::exchange(transfers_, {});
}

std::vector<FrameworkWaits::Event> FrameworkWaits::before_op(const Op& op) {
  std::vector<Event> waits;
  if (const auto own = std::exchange(own_, std::nullopt)) waits.push_back(*own);
  const bool reads_batch = std::exchange(reads_batch_, false);
  const auto computed = last_[std::size_t(Stream::compute)];
  if (!exchanges_ || prepares_gradients_ || is_transfer(op)) {
    if (reads_batch && computed) waits.push_back(*computed);
    return waits;
  }
  exchanges_ = false;
  for (std::size_t s = 0; s < kStreams; ++s) {
    if (last_[s] && !(expansion_.chunks && is_send(Stream(s)))) waits.push_back(*last_[s]);
  }
  return waits;
}

void FrameworkWaits::issued(const Op& op, bool host_waits, Event end) {
  last_[std::size_t(op.stream)] = end;
  if (host_waits) own_ = end;
  if (!is_transfer(op)) return;
  exchanges_ = expansion_.transfers_hold == TransfersHold::host;
  const bool holds = expansion_.transfers_hold == TransfersHold::compute;
  if (holds && !(expansion_.chunks && is_send(op.stream))) transfers_.push_back(end);
}

void FrameworkWaits::issued(RoutineId routine, Event end) {
  for (std::uint32_t streams = does_[routine.index()].streams; streams != 0; streams &= streams - 1)
    last_[std::size_t(std::countr_zero(streams))] = end;
}

}  // namespace plimsoll
