// Keeps the events that hosts and the compute stream wait for next.
#include "simulator/ranks/framework_waits.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "graph/op_table.h"

namespace plimsoll {
namespace {

bool is_transfer(const Op& op) { return op.kind == OpKind::send || op.kind == OpKind::recv; }

/// Whether the routine zeroes, merges, reduces or copies together gradients of a micro-batch. Such
/// calls lie between the transfers of one exchange and do not end it.
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
  for (std::size_t r = 0; r < expansion.program->routines.size(); ++r) {
    const Routine& routine = expansion.program->routines[r];
    Effects& effects = effects_.emplace_back();
    const std::vector<bool>& waits = expansion.routines[r].host_waits;
    effects.host_waits = !waits.empty() && waits.back();
    effects.compute = computes(routine);
    effects.prepare_gradients = prepares_gradients(routine);
    for (const Op& op : routine.ops) effects.streams |= 1u << std::uint32_t(op.stream);
  }
}

/// Whether the call is the first of a micro-batch's forward: the call that computes before it in
/// the Program does something else. (The calls that were issued do not tell, as some are skipped.)
bool FrameworkWaits::begins_forward(std::size_t call) const {
  const Program& program = *expansion_.program;
  const Call& own = program.calls[call];
  if (!own.micro_batch || program.at(own.routine).phase != Phase::forward) return false;
  for (std::size_t c = call; c > 0; --c) {
    const Call& before = program.calls[c - 1];
    const Effects& effects = effects_[before.routine.index()];
    if (!before.micro_batch || !effects.compute || effects.prepare_gradients) continue;
    return program.at(before.routine).phase != Phase::forward ||
           before.micro_batch != own.micro_batch;
  }
  return true;
}

std::vector<FrameworkWaits::Event> FrameworkWaits::before_call(std::size_t call) {
  const Effects& effects = effects_[expansion_.program->calls[call].routine.index()];
  prepares_gradients_ = effects.prepare_gradients;
  if (!effects.compute || prepares_gradients_) return {};
  reads_batch_ = expansion_.host_reads_batch && begins_forward(call);
  return std::exchange(transfers_, {});
}

std::vector<FrameworkWaits::Event> FrameworkWaits::before_op(const Op& op) {
  std::vector<Event> waits;
  if (const auto event = std::exchange(host_waits_for_, std::nullopt)) waits.push_back(*event);
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
  if (host_waits) host_waits_for_ = end;
  if (!is_transfer(op)) return;
  exchanges_ = expansion_.transfers_hold == TransfersHold::host;
  const bool holds = expansion_.transfers_hold == TransfersHold::compute;
  if (holds && !(expansion_.chunks && is_send(op.stream))) transfers_.push_back(end);
}

void FrameworkWaits::issued(RoutineId routine, Event end) {
  if (effects_[routine.index()].host_waits) host_waits_for_ = end;
  for (std::uint32_t streams = effects_[routine.index()].streams; streams != 0;
       streams &= streams - 1)
    last_[std::size_t(std::countr_zero(streams))] = end;
}

}  // namespace plimsoll
