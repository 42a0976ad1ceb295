// Adds up, op by op, what a framework's host does to issue it.
#include "simulator/costs/host_dispatch.h"

#include <algorithm>
#include <cmath>

#include "graph/op_table.h"

namespace plimsoll {
namespace {

bool is_gradient(const Routine& routine, TensorId id) {
  const std::optional<std::size_t>& slot = routine.places[id.index()].slot;
  if (!slot) return false;
  const SlotKind kind = routine.slots[*slot].kind;
  return kind == SlotKind::gradients || kind == SlotKind::tied_gradients;
}

/// Returns the number of parameter gradients that the op completes: no later op of the routine
/// writes to them.
std::int64_t completed_gradients(const Routine& routine, std::size_t index) {
  const Op& op = routine.ops[index];
  if (op.phase == Phase::optimizer || op.kind == OpKind::fill) return 0;
  return std::count_if(op.outputs.begin(), op.outputs.end(), [&](TensorId id) {
    if (!is_gradient(routine, id)) return false;
    return std::none_of(
        routine.ops.begin() + std::int64_t(index) + 1, routine.ops.end(), [&](const Op& later) {
          return std::find(later.outputs.begin(), later.outputs.end(), id) != later.outputs.end();
        });
  });
}

/// Whether the op is one of a mixture of experts alone.
bool is_of_experts(OpKind kind) {
  switch (kind) {
    case OpKind::route:
    case OpKind::route_backward:
    case OpKind::limit_choices:
    case OpKind::place_choices:
    case OpKind::dispatch_rows:
    case OpKind::dispatch_rows_backward:
    case OpKind::received_ends:
    case OpKind::grouped_matmul:
    case OpKind::grouped_matmul_backward:
    case OpKind::grouped_weight_gradient:
    case OpKind::combine_rows:
    case OpKind::combine_rows_backward:
      return true;
    default:
      return moves_rows(kind);
  }
}

}  // namespace

bool gathers_parameters(const Op& op) {
  return op.stream == Stream::data &&
         (op.kind == OpKind::all_gather || op.kind == OpKind::broadcast);
}

bool is_kernel(const Routine& routine, const Op& op) {
  if (op.phase == Phase::optimizer || communicates(op.kind)) return false;
  if (row(op.kind).one_op_everywhere) return false;
  return op.kind != OpKind::add || !is_gradient(routine, op.outputs[0]);
}

std::vector<Picoseconds> host_dispatch(const Routine& routine, const CostModel& costs) {
  const Framework& framework = costs.framework();
  std::vector<Picoseconds> times;
  for (std::size_t i = 0; i < routine.ops.size(); ++i) {
    const Op& op = routine.ops[i];
    Picoseconds time = costs.dispatch_op();
    if (communicates(op.kind)) time += costs.dispatch_communication();
    if (!costs.dispatch_is_measured()) {
      if (is_kernel(routine, op)) {
        time = Picoseconds(std::llround(double(time.count()) * framework.ops_per_kernel));
      }
      if (is_of_experts(op.kind))
        time = Picoseconds(std::llround(double(time.count()) * framework.ops_per_expert_op));
      const bool backward = op.phase == Phase::backward || op.phase == Phase::backward_weight;
      if (backward && !communicates(op.kind))
        time = Picoseconds(std::llround(double(time.count()) * framework.backward_dispatch));
      if (op.phase != Phase::optimizer && gathers_parameters(op))
        time += to_picoseconds(framework.dispatch_gather);
      time += to_picoseconds(framework.dispatch_gradient * double(completed_gradients(routine, i)));
    }
    times.push_back(time);
  }
  return times;
}

}  // namespace plimsoll
