// Weight gradients are computed after their layer's input gradient has begun its communication.
//
// Megatron-LM (core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication) and
// Transformer Engine (pytorch/module/linear.py, async_op) compute the gradient of a column-parallel
// layer's input first and start its all-reduce or reduce-scatter. They compute the weight's
// gradient meanwhile. The tokens that it needs are gathered while the input's gradient is computed.
#include <algorithm>
#include <set>

#include "graph/op_table.h"
#include "passes/graph/passes.h"

namespace plimsoll {

namespace {

bool gives_weight_gradient(const Graph& graph, const Op& op) {
  return op.kind == OpKind::matmul && op.phase == Phase::backward &&
         graph.at(op.outputs[0]).gradient_of.has_value();
}

/// Returns whether an op sums, over the ranks that split layers, gradients that go on to the layer
/// before.
bool reduces_gradients(const Op& op) {
  return op.stream == Stream::mp && op.phase == Phase::backward &&
         (op.kind == OpKind::all_reduce || op.kind == OpKind::reduce_scatter);
}

/// Returns the weight gradients among the ops [first, end), of the layers whose inputs' gradients
/// the op at `end` sums. A layer's two products follow each other, the weight's first.
std::set<std::size_t> partners(const Graph& graph, const std::vector<Op>& ops, std::size_t first,
                               std::size_t end) {
  std::set<std::size_t> found;
  std::set<TensorId> summed = {ops[end].inputs[0]};
  for (std::size_t i = end; i-- > first;) {
    if (!summed.contains(ops[i].outputs.at(0))) continue;
    if (ops[i].kind == OpKind::add) summed.insert(ops[i].inputs.begin(), ops[i].inputs.end());
    if (ops[i].kind != OpKind::matmul) continue;
    std::size_t before = i;
    while (before > first && !gives_weight_gradient(graph, ops[before])) --before;
    if (gives_weight_gradient(graph, ops[before])) found.insert(before);
  }
  return found;
}

/// Returns the ops that can be deferred: these, and ops that only they read (transposed copies), if
/// no op in between overwrites their operands.
std::vector<bool> deferred(const Graph& graph, const std::vector<Op>& ops, std::size_t first,
                           std::size_t end) {
  const std::set<std::size_t> gradients = partners(graph, ops, first, end);
  std::vector<bool> moves(ops.size());
  std::set<TensorId> read;  // by what stays, or comes later
  for (std::size_t i = ops.size(); i-- > first;) {
    const Op& op = ops[i];
    const bool feeds = i < end && (op.kind == OpKind::transpose || op.kind == OpKind::quantize);
    const bool feeds_others = std::any_of(op.outputs.begin(), op.outputs.end(),
                                          [&](TensorId id) { return read.contains(id); });
    moves[i] = gradients.contains(i) || (feeds && !feeds_others && !gradients.empty());
    if (!moves[i]) read.insert(op.inputs.begin(), op.inputs.end());
  }
  std::set<TensorId> overwritten;
  for (std::size_t i = end + 1; i-- > first;) {
    const std::optional<std::size_t> storage = in_place(ops[i], graph.tensors);
    if (!moves[i] && storage) overwritten.insert(ops[i].inputs[*storage]);
    for (TensorId id : ops[i].inputs) moves[i] = moves[i] && !overwritten.contains(id);
  }
  return moves;
}

/// Reorders the backward of one block. Returns whether the order changed.
bool defer(const Graph& graph, std::vector<Op>& ops) {
  bool changed = false;
  for (std::size_t first = 0, i = 0; i < ops.size(); ++i) {
    if (!reduces_gradients(ops[i])) continue;
    const std::vector<bool> moves = deferred(graph, ops, first, i);
    std::vector<Op> stay, move;
    for (std::size_t j = first; j <= i; ++j) (moves[j] ? move : stay).push_back(ops[j]);
    changed = changed || !move.empty();
    std::copy(stay.begin(), stay.end(), ops.begin() + std::ptrdiff_t(first));
    std::copy(move.begin(), move.end(), ops.begin() + std::ptrdiff_t(first + stay.size()));
    first = i + 1;
  }
  return changed;
}

}  // namespace

bool defer_weight_gradients(Graph& graph, const PassContext& context) {
  if (!context.framework.parallelism.overlap.tensor_gradients || context.strategy.mp == 1)
    return false;
  std::vector<Op> ops;
  bool changed = false;
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    std::vector<Op> of_block;
    for (const Op& op : graph.ops) {
      if (op.block == BlockId(b)) of_block.push_back(op);
    }
    if (defer(graph, of_block)) changed = true;
    ops.insert(ops.end(), of_block.begin(), of_block.end());
  }
  for (const Op& op : graph.ops) {
    if (!op.block) ops.push_back(op);
  }
  graph.ops = std::move(ops);
  return changed;
}

}  // namespace plimsoll
