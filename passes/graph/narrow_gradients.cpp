// Gradients of a step are added up and reduced in the 16-bit type of the computation. They are cast
// to f32 once per step for the update, unless the update reads them as they are.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "passes/graph/passes.h"
#include "passes/graph/step_ops.h"

namespace plimsoll {

namespace {

/// Blocks write narrow gradients; ops of the update read the f32 gradients of the same parameters.
void narrow_blocks(Graph& graph, DType type) {
  std::map<TensorId, TensorId> narrow;
  const auto replace = [&](TensorId& id) {
    if (!graph.at(id).gradient_of || graph.at(id).role != TensorRole::gradient) return;
    const auto [found, fresh] = narrow.try_emplace(id, id);
    if (fresh) {
      Tensor tensor = graph.at(id);
      tensor.name += "." + std::string(to_text(type));
      tensor.dtype = type;
      found->second = graph.add(std::move(tensor));
    }
    id = found->second;
  };
  for (Op& op : graph.ops) {
    if (!op.block || op.phase == Phase::optimizer) continue;
    for (TensorId& id : op.inputs) replace(id);
    for (TensorId& id : op.outputs) replace(id);
  }
}

}  // namespace

bool narrow_gradients(Graph& graph, const PassContext& context) {
  const DType type = context.job.precision;
  const auto arena = gradient_arena(graph);
  if (context.strategy.precision.gradients == GradientType::f32 || type == DType::f32 || !arena)
    return false;
  narrow_blocks(graph, type);
  if (context.strategy.precision.main_gradients == GradientType::computed) {
    graph.at(*arena).dtype = type;
    return true;
  }
  const TensorId wide =
      add_step_arena(graph, "main_gradients", TensorRole::activation, graph.at(*arena).shape[0]);
  graph.at(*arena).dtype = type;
  const auto zero = std::find_if(graph.ops.begin(), graph.ops.end(), [&](const Op& op) {
    return op.kind == OpKind::fill && op.outputs[0] == *arena;
  });
  INVARIANT(zero != graph.ops.end(), "a step begins with gradients of zero");
  for (auto op = zero + 1; op != graph.ops.end(); ++op) {
    std::replace(op->inputs.begin(), op->inputs.end(), *arena, wide);
    std::replace(op->outputs.begin(), op->outputs.end(), *arena, wide);
  }
  graph.ops.insert(zero + 1, step_op(OpKind::cast, {*arena}, {wide}));
  return true;
}

}  // namespace plimsoll
