#include "simulator/framework_waits.h"

#include <algorithm>
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

/// Whether the call is the first of a micro-batch's forward: what was computed before it, of the
/// Program, is something else. (Not of what was issued: calls before it may be left out.)
bool begins_forward(const Program& program, std::size_t call) {
  const Call& own = program.calls[call];
  if (!own.micro_batch || program.at(own.routine).phase != Phase::forward) return false;
  for (std::size_t c = call; c > 0; --c) {
    const Call& before = program.calls[c - 1];
    const Routine& routine = program.at(before.routine);
    if (!before.micro_batch || !computes(routine) || prepares_gradients(routine)) continue;
    return routine.phase != Phase::forward || before.micro_batch != own.micro_batch;
  }
  return true;
}

bool is_send(Stream stream) {
  return stream == Stream::send_next || stream == Stream::send_previous;
}

}  // namespace

std::vector<FrameworkWaits::Event> FrameworkWaits::before_call(std::size_t call) {
  const Program& program = *expansion_.program;
  const Routine& routine = program.at(program.calls[call].routine);
  prepares_gradients_ = prepares_gradients(routine);
  if (!computes(routine) || prepares_gradients_) return {};
  reads_batch_ = expansion_.host_reads_batch && begins_forward(program, call);
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

void FrameworkWaits::issued(const Routine& routine, Event end) {
  for (const Op& op : routine.ops) last_[std::size_t(op.stream)] = end;
}

}  // namespace plimsoll
