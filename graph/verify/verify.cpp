// The rules for one Graph are checked here.
#include "graph/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "graph/op_table.h"

namespace plimsoll {

namespace {

/// Tensors whose value lives across ops of the step and may be written more than once.
bool is_state(const Tensor& tensor) {
  return tensor.arena || tensor.role == TensorRole::scalar || tensor.gradient_of.has_value() ||
         tensor.role == TensorRole::optimizer_state ||
         tensor.role == TensorRole::master_parameter || tensor.role == TensorRole::workspace;
}

/// The update writes parameters; nothing else does.
bool may_write_again(const Op& op, const Tensor& tensor) {
  return is_state(tensor) || (op.phase == Phase::optimizer && tensor.role == TensorRole::parameter);
}

/// Arity, parameters and the table's own check of one op over `tensors`.
Verdict check_op(const Op& op, std::span<const Tensor> tensors) {
  const OpRow& expected = row(op.kind);
  const auto is_of = [](const std::vector<TensorId>& ids, const OperandList& operands) {
    return ids.size() >= operands.least() && ids.size() <= operands.most();
  };
  if (!is_of(op.inputs, expected.operands.inputs) ||
      !is_of(op.outputs, expected.operands.outputs)) {
    return Verdict::no(
        fmt::format("has {} inputs and {} outputs", op.inputs.size(), op.outputs.size()));
  }
  if (op.params.index() != expected.params) return Verdict::no("has parameters of another kind");
  for (const auto* ids : {&op.inputs, &op.outputs}) {
    for (TensorId id : *ids) {
      if (id.index() >= tensors.size())
        return Verdict::no(fmt::format("names tensor %{}", id.index()));
    }
  }
  if (updates_parameters(op) &&
      tensors[op.inputs[0].index()].role != TensorRole::master_parameter) {
    return Verdict::no("writes parameters next to tensors that are no masters");
  }
  return check_operands(op, tensors);
}

Verdict at_op(std::size_t index, const Op& op, const std::string& reason) {
  return Verdict::no(
      fmt::format("op {} ({} {}): {}", index, to_text(op.kind), to_text(op.phase), reason));
}

Verdict check_tensor(const Tensor& tensor) {
  for (std::int64_t extent : tensor.shape) {
    if (extent <= 0)
      return Verdict::no("tensor " + tensor.name + " has an extent that is not positive");
  }
  if (tensor.split &&
      (tensor.split->dim < 0 || tensor.split->dim >= std::int64_t(tensor.shape.size()) ||
       tensor.split->degree < 1 || tensor.split->copies < 1 || tensor.split->experts < 1)) {
    return Verdict::no("tensor " + tensor.name + " is split along a dimension it does not have");
  }
  if (tensor.split && (tensor.split->padding < 0 || tensor.split->padding >= tensor.split->degree ||
                       (tensor.split->padding > 0 && tensor.split->dim != 0))) {
    return Verdict::no("tensor " + tensor.name + " is padded by more than its split asks for");
  }
  return Verdict::yes();
}

Verdict check_borders(const Graph& graph) {
  for (std::size_t i = 0; i < graph.blocks.size(); ++i) {
    const Block& block = graph.blocks[i];
    if (block.variant_of) {
      if (block.variant_of->index() >= i || graph.at(*block.variant_of).variant_of) {
        return Verdict::no("block " + block.name + " is a variant of no block before it");
      }
      continue;
    }
    const bool last = i + 1 == graph.blocks.size() || graph.blocks[i + 1].variant_of;
    const bool ascends = std::ranges::adjacent_find(block.layers, std::ranges::greater_equal()) ==
                         block.layers.end();
    if (!block.layers.empty() &&
        (block.kind != BlockKind::layer || std::int64_t(block.layers.size()) != block.count ||
         block.layers.front() < 0 || !ascends)) {
      return Verdict::no("block " + block.name + " does not list its layers in order");
    }
    if (block.count < 1) return Verdict::no("block " + block.name + " has no instances");
    if (i > 0 && !block.input) return Verdict::no("block " + block.name + " has no input");
    if (!last && !block.output) return Verdict::no("block " + block.name + " has no output");
    if (block.count > 1 && (!block.input || !block.output)) {
      return Verdict::no("block " + block.name + " is repeated but has no borders");
    }
    if (block.count > 1 && graph.at(*block.input).shape != graph.at(*block.output).shape) {
      return Verdict::no("block " + block.name +
                         " is repeated but its input and output differ in shape");
    }
    if (block.parts < 1) return Verdict::no("block " + block.name + " has no parts");
    Shape taken = block.input ? graph.at(*block.input).shape : Shape();
    if (!taken.empty()) taken[0] *= block.parts;
    if (i > 0 && taken != graph.at(*graph.blocks[i - 1].output).shape) {
      return Verdict::no("block " + block.name + " does not take what the block before it gives");
    }
  }
  return Verdict::yes();
}

/// Defined before read, defined once, in-place inputs dead afterwards.
Verdict check_order(const Graph& graph) {
  std::vector<bool> defined(graph.tensors.size(), false), overwritten(graph.tensors.size(), false);
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    defined[i] = is_one_parameter(tensor) || is_state(tensor);
  }
  for (const Block& block : graph.blocks) {
    if (block.input) defined[block.input->index()] = true;
    if (block.output_gradient) defined[block.output_gradient->index()] = true;
  }
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    for (TensorId id : op.inputs) {
      if (!defined[id.index()])
        return at_op(i, op, "reads " + graph.at(id).name + " before it is written");
      if (overwritten[id.index()])
        return at_op(i, op, "reads " + graph.at(id).name + " after it was overwritten");
      const std::optional<BlockId> home = graph.at(id).block;
      if (op.block && home && home != op.block && home != graph.at(*op.block).variant_of) {
        return at_op(i, op, "reads " + graph.at(id).name + " of another block");
      }
    }
    const std::optional<std::size_t> storage = in_place(op, graph.tensors);
    if (storage && op.inputs[*storage] != op.outputs[0]) {
      overwritten[op.inputs[*storage].index()] = true;
    }
    for (std::size_t o = 0; o < op.outputs.size(); ++o) {
      const TensorId id = op.outputs[o];
      const bool adds = accumulates(op, o);
      if (adds && !defined[id.index()])
        return at_op(i, op, "adds to " + graph.at(id).name + " before it is written");
      if (defined[id.index()] && !adds && !may_write_again(op, graph.at(id))) {
        return at_op(i, op, "writes " + graph.at(id).name + " again");
      }
      defined[id.index()] = true;
    }
  }
  return Verdict::yes();
}

}  // namespace

Verdict verify(const Graph& graph) {
  std::set<std::string> names;
  for (const Tensor& tensor : graph.tensors) {
    if (!names.insert(tensor.name).second)
      return Verdict::no("two tensors are named " + tensor.name);
    if (Verdict verdict = check_tensor(tensor); !verdict) return verdict;
    if (tensor.block && tensor.block->index() >= graph.blocks.size()) {
      return Verdict::no("tensor " + tensor.name + " names a block that does not exist");
    }
  }
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    if (op.block && op.block->index() >= graph.blocks.size()) return at_op(i, op, "names no block");
    if (Verdict verdict = check_op(op, graph.tensors); !verdict)
      return at_op(i, op, verdict.reason());
  }
  if (Verdict verdict = check_borders(graph); !verdict) return verdict;
  return check_order(graph);
}

namespace {

Verdict check_routine(const Routine& routine) {
  if (routine.places.size() != routine.tensors.size())
    return Verdict::no("places and tensors differ in number");
  for (std::size_t i = 0; i < routine.tensors.size(); ++i) {
    const Place& place = routine.places[i];
    if (place.slot && *place.slot >= routine.slots.size()) {
      return Verdict::no(routine.tensors[i].name + " is placed in a slot that does not exist");
    }
    const Bytes room = place.slot ? routine.slots[*place.slot].bytes : routine.frame_bytes;
    if (place.offset < Bytes(0) || place.offset + bytes_of(routine.tensors[i]) > room) {
      return Verdict::no(routine.tensors[i].name + " does not fit at its place");
    }
  }
  for (std::size_t i = 0; i < routine.ops.size(); ++i) {
    const Op& op = routine.ops[i];
    if (Verdict verdict = check_op(op, routine.tensors); !verdict)
      return at_op(i, op, verdict.reason());
    if (row(op.kind).op_class == OpClass::abstract) return at_op(i, op, "is abstract");
    for (std::uint32_t wait : op.waits) {
      if (wait >= i) return at_op(i, op, "waits for an op that does not come before it");
    }
  }
  for (const Port& port : routine.ports) {
    if (port.op >= routine.ops.size() || port.tensor.index() >= routine.tensors.size()) {
      return Verdict::no("a port names no op or tensor");
    }
  }
  return Verdict::yes();
}

Verdict check_call(const Program& program, std::size_t index) {
  const Call& call = program.calls[index];
  if (call.routine.index() >= program.routines.size()) return Verdict::no("names no routine");
  const Routine& routine = program.at(call.routine);
  if (call.bindings.size() != routine.slots.size()) return Verdict::no("does not bind every slot");
  const auto alive = [&](BufferId id) {
    return id.index() < program.buffers.size() && program.at(id).begin <= index &&
           index < program.at(id).end;
  };
  for (std::size_t i = 0; i < call.bindings.size(); ++i) {
    const Binding& binding = call.bindings[i];
    if (!alive(binding.buffer))
      return Verdict::no(fmt::format("binds slot {} to a buffer that is not alive", i));
    if (binding.offset < Bytes(0) ||
        reach(program, binding, routine.slots[i].bytes) > program.at(binding.buffer).bytes) {
      return Verdict::no(
          fmt::format("slot {} reaches outside buffer {}", i, program.at(binding.buffer).name));
    }
  }
  if (routine.frame_bytes > Bytes(0) &&
      (!alive(call.frame) || program.at(call.frame).bytes != routine.frame_bytes)) {
    return Verdict::no("has no frame of the routine's size");
  }
  for (const Wait& wait : call.waits) {
    if (wait.call >= index) return Verdict::no("waits for a call that does not come before it");
    if (wait.port && *wait.port >= program.at(program.calls[wait.call].routine).ports.size()) {
      return Verdict::no("waits for a port that does not exist");
    }
  }
  return Verdict::yes();
}

Verdict check_arenas(const Program& program) {
  std::int64_t end = 0;
  for (const Bucket& bucket : program.buckets) {
    if (bucket.begin != end) return Verdict::no("buckets leave a gap in the arena");
    if (bucket.elements % shards(program, bucket) != 0)
      return Verdict::no("a bucket is not whole shards");
    end += bucket.elements;
  }
  std::int64_t at = 0;
  for (const Segment& segment : program.segments) {
    if (segment.offset < at)
      return Verdict::no("segment " + segment.parameter + " overlaps the one before it");
    if (elements(segment.shape) != segment.elements)
      return Verdict::no("segment " + segment.parameter + " is not of its shape");
    at = segment.offset + segment.elements;
  }
  if (at > end) return Verdict::no("buckets do not cover the segments");
  for (const Bucket& range : program.frozen_ranges) {
    if (range.elements % program.sharding_degree != 0)
      return Verdict::no("a range of frozen parameters is not whole shards");
  }
  Bytes frozen_end;
  for (const Segment& segment : program.frozen) {
    if (Bytes(segment.offset) < frozen_end)
      return Verdict::no("frozen " + segment.parameter + " overlaps the one before it");
    frozen_end = Bytes(segment.offset) + segment.elements * bytes_of(segment.dtype);
  }
  return Verdict::yes();
}

/// Buffers alive at the same call never share an address.
Verdict check_layout(const Program& program) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    if (buffer.begin >= buffer.end || buffer.end > program.calls.size()) {
      return Verdict::no("buffer " + buffer.name + " is alive in no call");
    }
    if (program.arena_bytes == Bytes(0)) continue;  // not laid out yet
    if (buffer.on_host) {
      if (buffer.offset < program.arena_bytes)
        return Verdict::no("buffer " + buffer.name + " of the host lies in the arena");
    } else if (buffer.offset < Bytes(0) || buffer.offset + buffer.bytes > program.arena_bytes) {
      return Verdict::no("buffer " + buffer.name + " lies outside the arena");
    }
    order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return program.buffers[a].begin < program.buffers[b].begin;
  });
  struct Live {
    std::size_t buffer, end;  // the first call without it
    Bytes from, to;
  };
  std::vector<Live> live;  // ascending begin; sweep
  for (std::size_t i : order) {
    const Buffer& buffer = program.buffers[i];
    const Bytes from = buffer.offset, to = from + buffer.bytes;
    std::erase_if(live, [&](const Live& other) { return other.end <= buffer.begin; });
    const auto other = std::ranges::find_if(
        live, [&](const Live& one) { return std::max(from, one.from) < std::min(to, one.to); });
    if (other != live.end()) {
      return Verdict::no("buffers " + buffer.name + " and " + program.buffers[other->buffer].name +
                         " overlap");
    }
    live.push_back({i, buffer.end, from, to});
  }
  return Verdict::yes();
}

}  // namespace

Verdict verify(const Program& program) {
  for (const Routine& routine : program.routines) {
    if (Verdict verdict = check_routine(routine); !verdict) {
      return Verdict::no("routine " + routine.name + ": " + verdict.reason());
    }
  }
  for (std::size_t i = 0; i < program.calls.size(); ++i) {
    if (Verdict verdict = check_call(program, i); !verdict) {
      return Verdict::no(fmt::format("call {} ({}): {}", i,
                                     program.at(program.calls[i].routine).name, verdict.reason()));
    }
  }
  if (Verdict verdict = check_arenas(program); !verdict) return verdict;
  return check_layout(program);
}

}  // namespace plimsoll
