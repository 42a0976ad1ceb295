// Bytes that ranks send are counted from Programs.
#include "graph/traffic.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "graph/op_table.h"

namespace plimsoll {

Bytes sent_bytes(OpKind kind, std::int64_t elements, Bytes element, std::int64_t ranks,
                 std::int64_t index, std::int64_t root) {
  if (kind == OpKind::send) return elements * element;
  if (ranks == 1) return Bytes();
  const std::int64_t own = elements / ranks + (index < elements % ranks ? 1 : 0);
  switch (kind) {
    case OpKind::all_reduce:
      return 2 * (elements - own) * element;
    case OpKind::ring_shift:
      return elements * element;
    case OpKind::reduce_scatter:
    case OpKind::all_gather:
    case OpKind::all_to_all:
    case OpKind::exchange_rows:
    case OpKind::return_rows:
    case OpKind::all_gather_rows:
    case OpKind::reduce_scatter_rows:
      return (elements - own) * element;
    case OpKind::reduce:
      return index == root ? Bytes() : elements * element;
    case OpKind::broadcast:
      return index == (root + ranks - 1) % ranks ? Bytes() : elements * element;
    default:
      INVARIANT(false, "not a communication that sends");
  }
}

Traffic traffic_of(const Grid& grid, std::int64_t rank, const Op& op, std::int64_t elements,
                   Bytes element) {
  const auto* collective = std::get_if<CollectiveParams>(&op.params);
  if (collective == nullptr) {
    const bool sends = op.kind == OpKind::send;
    return {op.kind, Group{{Axis::pp}}, 1, sends ? elements * element : Bytes()};
  }
  const Group& group = collective->group;
  return {op.kind, group, 1,
          sent_bytes(op.kind, elements, element, size(grid, group), index_in(grid, group, rank),
                     collective->root)};
}

void add(std::vector<Traffic>& traffic, const Traffic& one) {
  if (one.kind == OpKind::recv) return;
  const auto key = [](const Traffic& t) { return std::tuple(t.kind, t.group); };
  auto at = std::lower_bound(traffic.begin(), traffic.end(), one,
                             [&](const Traffic& a, const Traffic& b) { return key(a) < key(b); });
  if (at == traffic.end() || key(*at) != key(one)) {
    traffic.insert(at, one);
    return;
  }
  at->count += one.count;
  at->sent += one.sent;
}

std::vector<Traffic> step_traffic(const Program& program, std::int64_t rank) {
  std::vector<Traffic> traffic;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    for (const Op& op : routine.ops) {
      if (!communicates(op.kind)) continue;
      const Tensor& operand =
          routine.tensors[(op.inputs.empty() ? op.outputs[0] : op.inputs[0]).index()];
      const Bytes element = bytes_of(operand.dtype);
      const std::int64_t elements = bytes_moved(op, routine.tensors).count() / element.count();
      add(traffic, traffic_of(program.grid, rank, op, elements, element));
    }
  }
  return traffic;
}

}  // namespace plimsoll
