// Routines, buffers and calls are added to a Program here.
#include "passes/cut/program_builder.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "graph/op_table.h"

namespace plimsoll {

RoutineId ProgramBuilder::add_routine(const Routine& routine) {
  program.routines.push_back(routine);
  const bool computes =
      std::ranges::any_of(routine.ops, [](const Op& op) { return op.stream == Stream::compute; });
  facts_.push_back({computes, plimsoll::begins_elsewhere(routine)});
  return RoutineId(program.routines.size() - 1);
}

RoutineId ProgramBuilder::shared_routine(const Routine& routine) {
  Bytes bytes;
  for (const Slot& slot : routine.slots) bytes += slot.bytes;
  const auto [found, fresh] = payload_routines_.try_emplace(
      {routine.name, bytes, routine.tensors.at(0).dtype}, RoutineId(program.routines.size()));
  return fresh ? add_routine(routine) : found->second;
}

RoutineId ProgramBuilder::payload_routine(const std::string& name, OpKind kind, Phase phase,
                                          Stream stream, TensorRole role, DType type, Bytes bytes,
                                          OpParams params) {
  const auto [found, fresh] =
      payload_routines_.try_emplace({name, bytes, type}, RoutineId(program.routines.size()));
  if (!fresh) return found->second;
  Routine routine;
  routine.name = name;
  routine.phase = phase;
  Tensor payload;
  payload.name = "payload";
  payload.role = role;
  payload.dtype = type;
  payload.shape = {bytes.count() / bytes_of(type).count()};
  routine.tensors = {payload};
  routine.slots = {{SlotKind::payload, bytes}};
  routine.places = {{0, {}}};
  Op op;
  op.kind = kind;
  op.phase = phase;
  op.stream = stream;
  if (kind != OpKind::recv) op.inputs = {TensorId(0)};
  if (kind != OpKind::send) op.outputs = {TensorId(0)};
  op.params = std::move(params);
  routine.ops = {op};
  return add_routine(routine);
}

RoutineId ProgramBuilder::copy_routine(const std::string& name, OpKind kind, Phase phase,
                                       TensorRole role, Bytes bytes) {
  const bool out = kind == OpKind::copy_to_host;
  Routine routine;
  routine.name = name;
  routine.phase = phase;
  for (const bool source : {true, false}) {
    Tensor tensor;
    tensor.name = source == out ? "values" : "copy";
    tensor.role = role;
    tensor.dtype = DType::u8;
    tensor.shape = {bytes.count()};
    tensor.on_host = source != out;
    routine.places.push_back({routine.slots.size(), {}});
    routine.slots.push_back({SlotKind::payload, bytes});
    routine.tensors.push_back(std::move(tensor));
  }
  Op op;
  op.kind = kind;
  op.phase = phase;
  op.stream = out ? Stream::to_host : Stream::to_device;
  op.inputs = {TensorId(0)};
  op.outputs = {TensorId(1)};
  routine.ops = {op};
  return shared_routine(routine);
}

BufferId ProgramBuilder::add_buffer(std::string name, TensorRole role, Bytes bytes,
                                    std::size_t begin, std::size_t end) {
  Buffer buffer;
  buffer.name = std::move(name);
  buffer.role = role;
  buffer.bytes = bytes;
  buffer.begin = begin;
  buffer.end = end;
  program.buffers.push_back(std::move(buffer));
  return BufferId(program.buffers.size() - 1);
}

BufferId ProgramBuilder::add_persistent(std::string name, TensorRole role, Bytes bytes) {
  const BufferId id = add_buffer(std::move(name), role, bytes, 0);
  buffer(id).persistent = true;
  return id;
}

BufferId ProgramBuilder::add_on_host(std::string name, TensorRole role, Bytes bytes) {
  const BufferId id = add_persistent(std::move(name), role, bytes);
  buffer(id).on_host = true;
  return id;
}

std::size_t ProgramBuilder::add_call(RoutineId routine, std::optional<std::int64_t> layer,
                                     std::optional<std::int64_t> micro_batch,
                                     std::vector<Binding> bindings, std::vector<Wait> waits) {
  const std::size_t index = next_call();
  Call call{routine, layer, micro_batch, std::move(bindings), std::move(waits), {}};
  const Routine& definition = program.at(routine);
  if (definition.frame_bytes > Bytes(0)) {
    call.frame =
        add_buffer("frame", TensorRole::activation, definition.frame_bytes, index, index + 1);
  }
  program.calls.push_back(std::move(call));
  if (facts_[routine.index()].computes) last_compute_ = index;
  return index;
}

std::optional<std::size_t> ProgramBuilder::find_port(std::size_t call, SlotKind kind, Bytes offset,
                                                     std::optional<std::size_t> entry) const {
  const Routine& routine = program.at(program.calls[call].routine);
  for (std::size_t i = 0; i < routine.ports.size(); ++i) {
    const Place& place = routine.places[routine.ports[i].tensor.index()];
    if (!place.slot || place.offset != offset) continue;
    const Slot& slot = routine.slots[*place.slot];
    if (slot.kind == kind && slot.entry == entry) return i;
  }
  return std::nullopt;
}

std::size_t ProgramBuilder::port_of(std::size_t call, SlotKind kind, Bytes offset) const {
  const auto found = find_port(call, kind, offset);
  INVARIANT(found, "routine " + program.at(program.calls[call].routine).name + " has no such port");
  return *found;
}

bool begins_elsewhere(const Routine& routine) {
  std::set<Stream> begun = {Stream::compute};
  return std::any_of(routine.ops.begin(), routine.ops.end(), [&](const Op& op) {
    return begun.insert(op.stream).second && op.waits.empty();
  });
}

namespace {

/// Returns the routine's communications of values in its frame that are still under way when the
/// routine ends.
std::vector<std::size_t> last_transfers(const Routine& routine) {
  const auto in_frame = [&](TensorId id) { return !routine.places[id.index()].slot; };
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < routine.ops.size(); ++i) {
    const Op& op = routine.ops[i];
    if (!communicates(op.kind)) continue;
    if (std::ranges::none_of(op.inputs, in_frame) && std::ranges::none_of(op.outputs, in_frame))
      continue;
    // A stream runs in order.
    const bool over = std::ranges::any_of(routine.ops, [&](const Op& later) {
      return std::ranges::any_of(later.waits, [&](std::uint32_t wait) {
        return wait >= i && routine.ops[wait].stream == op.stream;
      });
    });
    if (!over) found.push_back(i);
  }
  return found;
}

}  // namespace

void ProgramBuilder::keep_used_frames() {
  std::vector<std::vector<std::size_t>> last;
  for (const Routine& routine : program.routines) last.push_back(last_transfers(routine));
  for (std::size_t i = 0; i < program.calls.size(); ++i) {
    const Call& call = program.calls[i];
    for (const std::size_t op : last[call.routine.index()]) {
      const Routine& routine = program.at(call.routine);
      const auto waits_for_op = [&](const Wait& wait) {
        if (wait.call != i) return false;
        if (!wait.port) return true;
        const std::size_t other = routine.ports[*wait.port].op;
        return other >= op && routine.ops[other].stream == routine.ops[op].stream;
      };
      const auto next = std::find_if(
          program.calls.begin() + std::ptrdiff_t(i) + 1, program.calls.end(),
          [&](const Call& later) { return std::ranges::any_of(later.waits, waits_for_op); });
      if (next == program.calls.end()) continue;  // its result is not read
      Buffer& frame = buffer(call.frame);
      frame.end = std::max(frame.end, std::size_t(next - program.calls.begin()));
    }
  }
}

Program ProgramBuilder::finish() {
  keep_used_frames();
  for (Buffer& found : program.buffers) {
    if (found.end == 0) found.end = next_call();
  }
  return std::move(program);
}

}  // namespace plimsoll
