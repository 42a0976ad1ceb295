// Prints Graphs, routines and Programs in their text form, which tests read back.
#include <fmt/compile.h>
#include <fmt/format.h>

#include <concepts>
#include <iterator>

#include "graph/params.h"
#include "graph/text.h"

namespace plimsoll {

namespace {

std::string value_text(std::int64_t value) { return fmt::format("{}", value); }
std::string value_text(double value) { return fmt::format("{}", value); }
std::string value_text(bool value) { return value ? "true" : "false"; }
std::string value_text(const std::optional<std::int64_t>& value) {
  return value ? value_text(*value) : "";
}
std::string value_text(const Group& value) { return to_text(value); }
std::string value_text(Reduction value) { return std::string(to_text(value)); }
std::string value_text(RotaryScaling value) { return std::string(to_text(value)); }

std::string ids_text(const std::vector<TensorId>& ids) {
  std::string text = "(";
  for (std::size_t i = 0; i < ids.size(); ++i) {
    text += fmt::format("{}%{}", i == 0 ? "" : ", ", ids[i].index());
  }
  return text + ")";
}

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ",", shape[i]);
  return text + "]";
}

std::string grid_text(const Grid& grid) {
  std::string text = "grid", order;
  for (std::size_t axis = 0; axis < kAxes; ++axis) {
    if (axis >= kRankAxes && grid.degree[axis] == 1) continue;
    text += fmt::format(" {}={}", to_text(Axis(axis)), grid.degree[axis]);
  }
  for (std::size_t axis = 0; axis < kRankAxes; ++axis) {
    order += fmt::format("{}{}", axis == 0 ? "" : ",", to_text(grid.order[axis]));
  }
  return text + " order=" + order + "\n";
}

/// The fields that tensors and segments have in common.
template <class Layout>
std::string layout_text(const Layout& layout) {
  std::string text;
  if (const auto& split = layout.split) {
    text += fmt::format(" split={}:{}:{}", split->dim, to_text(split->axis), split->degree);
    const bool twice = split->experts != 1, padded = split->padding != 0;
    if (split->copies != 1 || padded || twice) text += fmt::format(":{}", split->copies);
    if (padded || twice) text += fmt::format(":{}", split->padding);
    if (twice) text += fmt::format(":{}", split->experts);
  }
  if (layout.init != Init::none) text += fmt::format(" init={}", to_text(layout.init));
  if (layout.init_stddev != 0) text += fmt::format(" stddev={}", layout.init_stddev);
  if (layout.decay) text += " decay";
  if (!layout.clip) text += " unclipped";
  if (layout.rate != 1) text += fmt::format(" rate={}", layout.rate);
  if (layout.weight_decay) text += fmt::format(" weight_decay={}", *layout.weight_decay);
  return text;
}

std::string tensor_text(std::size_t id, const Tensor& tensor) {
  std::string text = fmt::format("tensor %{} {} {}{} {}", id, tensor.name, to_text(tensor.dtype),
                                 shape_text(tensor.shape), to_text(tensor.role));
  if (tensor.block) text += fmt::format(" block={}", tensor.block->index());
  text += layout_text(tensor);
  if (!tensor.packed.empty()) text += " packed=" + shape_text(tensor.packed);
  if (tensor.arena) text += " arena";
  if (tensor.on_host) text += " on_host";
  if (tensor.gradient_group)
    text += fmt::format(" gradient_group={}", to_text(*tensor.gradient_group));
  if (tensor.filled != 1) text += fmt::format(" filled={}", tensor.filled);
  if (tensor.element) text += fmt::format(" element={}", *tensor.element);
  if (tensor.gradient_of) text += fmt::format(" gradient_of=%{}", tensor.gradient_of->index());
  if (tensor.tied_to) text += fmt::format(" tied_to=%{}", tensor.tied_to->index());
  return text;
}

std::string segment_text(const char* word, const Segment& s) {
  return fmt::format(
      "{} {} layer={} shape={}{}{}{} offset={} elements={} norm_weight={}{}{}\n", word, s.parameter,
      s.layer, shape_text(s.shape), s.packed.empty() ? "" : " packed=" + shape_text(s.packed),
      s.dtype == DType::f32 ? "" : fmt::format(" type={}", to_text(s.dtype)), layout_text(s),
      s.offset, s.elements, s.norm_weight, s.group != 0 ? fmt::format(" group={}", s.group) : "",
      s.owner ? fmt::format(" owner={}", *s.owner) : "");
}

std::string bucket_text(const char* word, const Bucket& b) {
  return fmt::format("{} begin={} elements={}{}{}\n", word, b.begin, b.elements,
                     b.owner ? fmt::format(" owner={}", *b.owner) : "",
                     b.experts ? " experts" : "");
}

std::string op_text(const Op& op) {
  std::string text = fmt::format("op {} {}", to_text(op.kind), to_text(op.phase));
  text += fmt::format(" {} -> {}", ids_text(op.inputs), ids_text(op.outputs));
  if (op.block) text += fmt::format(" block={}", op.block->index());
  if (op.stream != Stream::compute) text += fmt::format(" stream={}", to_text(op.stream));
  const std::string params = print(op.params);
  if (!params.empty()) text += " " + params;
  for (std::size_t i = 0; i < op.waits.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? " waits=" : ",", op.waits[i]);
  }
  return text + "\n";
}

void append(std::string& text, std::string_view before, std::integral auto number) {
  const fmt::format_int digits(number);
  text += before;
  text.append(digits.data(), digits.size());
}

/// Long steps have millions of calls: each is appended piece by piece.
void append_call(std::string& text, std::size_t id, const Call& call, const Program& program) {
  append(text, "call ", id);
  append(text, " ", call.routine.index());
  if (call.layer) append(text, " layer=", *call.layer);
  if (call.micro_batch) append(text, " micro_batch=", *call.micro_batch);
  if (call.part != 0) append(text, " part=", call.part);
  for (std::size_t i = 0; i < call.bindings.size(); ++i) {
    const Binding& binding = call.bindings[i];
    append(text, i == 0 ? " bind=" : ",", binding.buffer.index());
    append(text, "+", binding.offset.count());
    if (binding.shard_stride == Bytes(0)) continue;
    append(text, "*", binding.shard_stride.count());
    if (binding.stride_axis != Axis::sharding) {
      text += '@';
      text += to_text(binding.stride_axis);
    }
  }
  for (std::size_t i = 0; i < call.waits.size(); ++i) {
    append(text, i == 0 ? " waits=" : ",", call.waits[i].call);
    if (call.waits[i].port) append(text, ".", *call.waits[i].port);
  }
  if (program.at(call.routine).frame_bytes > Bytes(0)) append(text, " frame=", call.frame.index());
  text += '\n';
}

/// Layers as runs: 0-4+6-10.
std::string layers_text(const std::vector<std::int64_t>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    if (i > 0) text += "+";
    text += fmt::format("{}", layers[i]);
    if (end - i > 1) text += fmt::format("-{}", layers[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace

std::string print(const OpParams& params) {
  std::string text;
  std::visit(
      [&](auto p) {  // a copy: fields() takes mutable references
        decltype(p) defaults;
        std::vector<std::string> values;
        fields(defaults,
               [&](std::string_view, auto& field) { values.push_back(value_text(field)); });
        std::size_t i = 0;
        fields(p, [&](std::string_view name, auto& field) {
          const std::string value = value_text(field);
          if (value != values[i++])
            text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
        });
      },
      params);
  return text;
}

std::string print(const Routine& routine, std::size_t id) {
  std::string text = fmt::format("\nroutine {} {} {} frame_bytes={}\n", id, routine.name,
                                 to_text(routine.phase), routine.frame_bytes.count());
  for (const Slot& slot : routine.slots) {
    text += fmt::format("slot {} bytes={}{}\n", to_text(slot.kind), slot.bytes.count(),
                        slot.entry ? fmt::format(" entry={}", *slot.entry) : "");
  }
  for (std::size_t i = 0; i < routine.tensors.size(); ++i) {
    const Place& place = routine.places[i];
    text += tensor_text(i, routine.tensors[i]);
    text += place.slot ? fmt::format(" at=slot{}+{}\n", *place.slot, place.offset.count())
                       : fmt::format(" at=frame+{}\n", place.offset.count());
  }
  for (const Op& op : routine.ops) text += op_text(op);
  for (const Port& port : routine.ports) {
    text += fmt::format("port %{} op={}\n", port.tensor.index(), port.op);
  }
  return text;
}

std::string print(const Graph& graph) {
  std::string text = fmt::format("graph {}\n", graph.name) + grid_text(graph.grid);
  for (std::size_t i = 0; i < graph.blocks.size(); ++i) {
    const Block& block = graph.blocks[i];
    text += fmt::format("block {} {} {} x{}", i, block.name, to_text(block.kind), block.count);
    const auto border = [&](std::string_view name, const std::optional<TensorId>& id) {
      if (id) text += fmt::format(" {}=%{}", name, id->index());
    };
    if (!block.layers.empty()) text += " layers=" + layers_text(block.layers);
    border("input", block.input);
    border("output", block.output);
    border("input_gradient", block.input_gradient);
    border("output_gradient", block.output_gradient);
    if (block.variant_of) text += fmt::format(" variant_of={}", block.variant_of->index());
    if (block.parts != 1) text += fmt::format(" parts={}", block.parts);
    text += "\n";
  }
  for (std::size_t i = 0; i < graph.tensors.size(); ++i)
    text += tensor_text(i, graph.tensors[i]) + "\n";
  for (const Op& op : graph.ops) text += op_text(op);
  return text;
}

std::string print(const Program& program) {
  std::string text = fmt::format("program {}\n", program.name) + grid_text(program.grid);
  text += fmt::format(
      "class stage={}{} sharding_degree={} micro_batch={} micro_batches={} arena_bytes={}\n",
      program.stage, program.owner ? fmt::format(" owner={}", *program.owner) : "",
      program.sharding_degree, program.micro_batch, program.micro_batches,
      program.arena_bytes.count());
  for (std::size_t i = 0; i < program.routines.size(); ++i) text += print(program.routines[i], i);
  text += "\n";
  for (const Segment& s : program.segments) text += segment_text("segment", s);
  for (const Segment& s : program.frozen) text += segment_text("frozen", s);
  for (const Bucket& b : program.buckets) text += bucket_text("bucket", b);
  for (const Bucket& b : program.frozen_ranges) text += bucket_text("frozen_range", b);
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& b = program.buffers[i];
    fmt::format_to(std::back_inserter(text),
                   FMT_COMPILE("buffer {} {} {} bytes={} begin={} end={} offset={}{}{}\n"), i,
                   b.name, to_text(b.role), b.bytes.count(), b.begin, b.end, b.offset.count(),
                   b.persistent ? " persistent" : "", b.on_host ? " on_host" : "");
  }
  for (std::size_t i = 0; i < program.calls.size(); ++i)
    append_call(text, i, program.calls[i], program);
  return text;
}

}  // namespace plimsoll
