// Builds the program of a micro-batch, or extends it to more sequences.
#include "planner/bounds/micro_batch_program.h"

#include <algorithm>

namespace plimsoll {
namespace {

/// Bytes that rounding may add to the tensors of one slot or frame.
constexpr std::int64_t kRounding = 1 << 16;

bool same_but_sizes(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.role == b.role && a.shape.size() == b.shape.size();
}

bool same_op(const Op& a, const Op& b) {
  return a.kind == b.kind && a.stream == b.stream && a.inputs == b.inputs &&
         a.outputs == b.outputs && a.waits == b.waits && a.params.index() == b.params.index();
}

bool same_but_sizes(const Routine& a, const Routine& b) {
  const auto same_slots = [](const Slot& x, const Slot& y) { return x.kind == y.kind; };
  const auto same_tensors = [](const Tensor& x, const Tensor& y) { return same_but_sizes(x, y); };
  return std::ranges::equal(a.ops, b.ops, same_op) &&
         std::ranges::equal(a.tensors, b.tensors, same_tensors) &&
         std::ranges::equal(a.slots, b.slots, same_slots) && std::ranges::equal(a.ports, b.ports);
}

Bytes extended_bytes(Bytes one, Bytes two, std::int64_t sequences) {
  const std::int64_t more = (two - one).count() - kRounding;
  return Bytes(one.count() + std::max<std::int64_t>(0, more) * (sequences - 1));
}

void extend(Routine& routine, const Routine& two, std::int64_t sequences) {
  for (std::size_t t = 0; t < routine.tensors.size(); ++t) {
    Shape& shape = routine.tensors[t].shape;
    for (std::size_t d = 0; d < shape.size(); ++d)
      shape[d] += (two.tensors[t].shape[d] - shape[d]) * (sequences - 1);
  }
  for (std::size_t s = 0; s < routine.slots.size(); ++s) {
    Bytes& bytes = routine.slots[s].bytes;
    bytes = extended_bytes(bytes, two.slots[s].bytes, sequences);
  }
  routine.frame_bytes = extended_bytes(routine.frame_bytes, two.frame_bytes, sequences);
}

}  // namespace

MicroBatchProgram micro_batch_program(const Graph& graph, const CutGraph& cut, const Grid& grid) {
  MicroBatchProgram all;
  all.program.grid = grid;
  all.shapes = block_shapes(graph);
  for (std::size_t b = 0; b < cut.blocks.size(); ++b) {
    const CutBlock& block = cut.blocks[b];
    const auto& variant_of = graph.blocks[b].variant_of;
    all.variant_of.push_back(variant_of ? std::optional(variant_of->index()) : std::nullopt);
    for (const Routine* routine : {&block.forward, &block.backward, &block.weight_gradient}) {
      Call call;
      call.routine = RoutineId(all.program.routines.size());
      all.program.routines.push_back(*routine);
      all.program.calls.push_back(std::move(call));
      for (Tensor& tensor : all.program.routines.back().tensors) tensor.name = {};
    }
  }
  return all;
}

std::optional<MicroBatchProgram> extended(const MicroBatchProgram& one,
                                          const MicroBatchProgram& two, std::int64_t sequences) {
  const auto same = [](const Routine& a, const Routine& b) { return same_but_sizes(a, b); };
  if (!std::ranges::equal(one.program.routines, two.program.routines, same)) return std::nullopt;
  MicroBatchProgram all = one;
  for (std::size_t r = 0; r < all.program.routines.size(); ++r)
    extend(all.program.routines[r], two.program.routines[r], sequences);
  return all;
}

}  // namespace plimsoll
