// Prepare: kernels, addresses and waits of a Program on one rank.
#include "runtime/prepare.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "graph/op_table.h"

namespace plimsoll {
namespace {

/// The buffer that holds a tensor of a call, and where in it the tensor starts.
std::pair<BufferId, Bytes> locate(const Grid& grid, const Routine& routine, const Call& call,
                                  TensorId tensor, const Coordinates& at) {
  const Place& place = routine.places[tensor.index()];
  if (!place.slot) return {call.frame, place.offset};
  const Binding& binding = call.bindings[*place.slot];
  return {binding.buffer, slot_offset(grid, binding, at) + place.offset};
}

class Preparer {
 public:
  Preparer(const Program& program, const Arena& arena, Backend& backend, const RankContext& context)
      : program_(program), arena_(arena), backend_(backend), context_(context) {}

  PreparedProgram run() {
    make_kernels();
    for (const Call& call : program_.calls) {
      add_call(call);
      if (call.micro_batch) result_.first_update = nullptr;
      if (!call.micro_batch && result_.first_update == nullptr) result_.first_update = &call;
    }
    for (std::size_t i = 0; i < program_.buffers.size(); ++i) add_lifetime(BufferId(i));
    return std::move(result_);
  }

 private:
  void make_kernels() {
    for (const Routine& routine : program_.routines) {
      std::vector<Kernel*>& kernels = kernels_.emplace_back();
      for (const Op& op : routine.ops) {
        if (communicates(op.kind)) {
          kernels.push_back(nullptr);
          continue;
        }
        result_.kernels.push_back(backend_.prepare(op, routine.tensors, context_));
        kernels.push_back(result_.kernels.back().get());
      }
    }
  }

  void add_call(const Call& call) {
    const Routine& routine = program_.at(call.routine);
    PreparedCall& prepared = result_.calls.emplace_back();
    prepared.call = &call;
    prepared.routine = &routine;
    prepared.first_op = std::uint32_t(result_.ops.size());
    for (const Wait& wait : call.waits) add_waits(wait, prepared.waits);
    for (std::size_t i = 0; i < routine.ops.size(); ++i) add_op(prepared, i);
  }

  // Local ops are over when they return, so only communications are ever waited for.
  void add_waits(const Wait& wait, std::vector<std::uint32_t>& waits) const {
    const PreparedCall& earlier = result_.calls[wait.call];
    const std::vector<Op>& ops = earlier.routine->ops;
    if (wait.port) return add_stream(earlier, earlier.routine->ports[*wait.port].op, waits);
    for (std::size_t op = 0; op < ops.size(); ++op) {
      if (communicates(ops[op].kind)) waits.push_back(earlier.first_op + std::uint32_t(op));
    }
  }

  /// Adds a communication of a call, and those before it. A stream runs in order, so they are over
  /// with it.
  static void add_stream(const PreparedCall& call, std::uint32_t last,
                         std::vector<std::uint32_t>& waits) {
    const std::vector<Op>& ops = call.routine->ops;
    for (std::uint32_t op = 0; op <= last; ++op) {
      if (communicates(ops[op].kind) && ops[op].stream == ops[last].stream)
        waits.push_back(call.first_op + op);
    }
  }

  void add_op(const PreparedCall& call, std::size_t index) {
    const Op& op = call.routine->ops[index];
    PreparedOp prepared;
    prepared.op = &op;
    prepared.kernel = kernels_[call.call->routine.index()][index];
    for (const TensorId id : op.inputs) prepared.inputs.push_back(address(call, id));
    for (const TensorId id : op.outputs) prepared.outputs.push_back(address(call, id));
    for (const std::uint32_t wait : op.waits) add_stream(call, wait, prepared.waits);
    if (prepared.kernel == nullptr) add_operand(call, prepared);
    result_.ops.push_back(std::move(prepared));
  }

  void add_operand(const PreparedCall& call, PreparedOp& prepared) {
    const Op& op = *prepared.op;
    const std::vector<Tensor>& tensors = call.routine->tensors;
    const bool two = !op.inputs.empty() && !op.outputs.empty();
    const bool writes_whole = op.kind == OpKind::recv || op.kind == OpKind::all_gather;
    const TensorId whole = writes_whole ? op.outputs[0] : op.inputs[0];
    prepared.operand.dtype = tensors[whole.index()].dtype;
    prepared.operand.elements = elements(tensors[whole.index()].shape);
    prepared.operand.whole = address(call, whole);
    if (two && !in_place(op, tensors)) {
      prepared.operand.part = address(call, writes_whole ? op.inputs[0] : op.outputs[0]);
      if (op.inputs.size() > 1) prepared.operand.rows = expert_rows(call, op);
    } else {
      INVARIANT(!two || prepared.inputs[0] == prepared.outputs[0],
                "a collective of operands of one size works in place in " + call.routine->name);
    }
    for (const auto* ids : {&op.inputs, &op.outputs}) {
      for (const TensorId id : *ids) {
        const BufferId buffer =
            locate(program_.grid, *call.routine, *call.call, id, context_.at).first;
        if (prepared.buffers.empty() || prepared.buffers[0] != buffer) {
          prepared.buffers.push_back(buffer);
        }
      }
    }
    const Bytes element = bytes_of(prepared.operand.dtype);
    prepared.traffic = traffic_of(program_.grid, program_.grid.rank(context_.at), op,
                                  bytes_moved(op, tensors).count() / element.count(), element);
    result_.communications.push_back(std::uint32_t(result_.ops.size()));
  }

  ExpertRows expert_rows(const PreparedCall& call, const Op& op) const {
    const Tensor &rows = call.routine->tensors[op.inputs[0].index()],
                 &ends = call.routine->tensors[op.inputs[1].index()];
    const bool shared =
        op.kind == OpKind::all_gather_rows || op.kind == OpKind::reduce_scatter_rows;
    const bool back = op.kind == OpKind::return_rows || op.kind == OpKind::reduce_scatter_rows;
    const Tensor& received = back ? rows : call.routine->tensors[op.outputs[0].index()];
    return {reinterpret_cast<const std::int32_t*>(address(call, op.inputs[1])), ends.shape[1],
            elements(rows.shape) / rows.shape[0], shared, received.shape[0]};
  }

  std::byte* address(const PreparedCall& call, TensorId tensor) const {
    const auto [buffer, offset] =
        locate(program_.grid, *call.routine, *call.call, tensor, context_.at);
    return arena_.at(buffer) + offset.count();
  }

  void add_lifetime(BufferId id) {
    const Buffer& buffer = program_.at(id);
    if (buffer.persistent) {
      result_.persistent.push_back(id);
      return;
    }
    if (buffer.begin == buffer.end) return;
    result_.calls[buffer.begin].acquires.push_back(id);
    if (buffer.end < program_.calls.size()) {
      result_.calls[buffer.end].releases.push_back(id);
    } else {
      result_.last_releases.push_back(id);
    }
  }

  const Program& program_;
  const Arena& arena_;
  Backend& backend_;
  const RankContext& context_;
  std::vector<std::vector<Kernel*>> kernels_;  // by routine and op
  PreparedProgram result_;
};

}  // namespace

PreparedProgram prepare_program(const Program& program, const Arena& arena, Backend& backend,
                                const RankContext& context) {
  return Preparer(program, arena, backend, context).run();
}

std::vector<Bytes> needed_bytes(const Program& program, const Coordinates& at, Bytes workspace) {
  std::vector<Bytes> needed(program.buffers.size());
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    for (std::size_t i = 0; i < routine.tensors.size(); ++i) {
      const auto [buffer, offset] = locate(program.grid, routine, call, TensorId(i), at);
      Bytes& reach = needed[buffer.index()];
      reach = std::max(reach, offset + bytes_of(routine.tensors[i]));
    }
    for (std::size_t i = 0; i < routine.slots.size(); ++i) {
      // A block's parameters are one range, with the padding behind the last.
      if (routine.slots[i].kind != SlotKind::parameters) continue;
      Bytes& reach = needed[call.bindings[i].buffer.index()];
      reach =
          std::max(reach, slot_offset(program.grid, call.bindings[i], at) + routine.slots[i].bytes);
    }
  }
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    if (buffer.role == TensorRole::workspace) needed[i] = workspace;
    INVARIANT(needed[i] <= buffer.bytes, "tensors reach beyond the end of buffer " + buffer.name);
  }
  return needed;
}

Bytes slot_offset(const Grid& grid, const Binding& binding, const Coordinates& at) {
  const std::int64_t part = binding.stride_axis == Axis::sharding
                                ? shard_index(grid, at)
                                : at[std::size_t(binding.stride_axis)];
  return binding.offset + binding.shard_stride * part;
}

}  // namespace plimsoll
