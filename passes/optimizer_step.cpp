#include "base/error.h"
#include "passes/passes.h"

namespace plimsoll {

namespace {

/// Elements that one rank of the graph holds over all layers; tied parameters once.
std::int64_t local_parameters(const Graph& graph) {
  std::int64_t count = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.role != TensorRole::parameter || tensor.tied_to) continue;
    count += elements(tensor.shape) * graph.at(*tensor.block).count;
  }
  return count;
}

TensorId add_arena(Graph& graph, const std::string& name, TensorRole role, std::int64_t elements) {
  Tensor tensor;
  tensor.name = name;
  tensor.role = role;
  tensor.shape = {elements};
  tensor.arena = true;
  return graph.add(std::move(tensor));
}

TensorId find_scalars(const Graph& graph) {
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    if (graph.tensors[i].role == TensorRole::scalar) return TensorId(i);
  }
  INVARIANT(false, "a graph has step scalars");
}

Op step_op(OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
           OpParams params = {}) {
  Op op;
  op.kind = kind;
  op.phase = Phase::optimizer;
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  op.params = std::move(params);
  return op;
}

}  // namespace

bool optimizer_step(Graph& graph, const PassContext& context) {
  const Optimizer& optimizer = context.job.optimizer;
  const std::int64_t count = local_parameters(graph);
  if (count == 0) return false;
  const TensorId scalars = find_scalars(graph);
  const TensorId parameters = add_arena(graph, "parameters", TensorRole::parameter, count);
  const TensorId gradients = add_arena(graph, "gradients", TensorRole::gradient, count);
  const TensorId first = add_arena(graph, "first_moment", TensorRole::optimizer_state, count);
  const TensorId second = add_arena(graph, "second_moment", TensorRole::optimizer_state, count);
  Tensor sum;
  sum.name = "squared_norm";
  sum.shape = {1};
  const TensorId norm = graph.add(sum);

  graph.ops.push_back(step_op(OpKind::begin_step, {scalars}, {scalars}));
  graph.ops.push_back(step_op(OpKind::fill, {}, {gradients}, FillParams{0}));
  graph.ops.push_back(step_op(OpKind::squared_norm, {gradients}, {norm}, FlatParams{1}));
  TensorId whole = norm;
  // Over exactly the axes along which the gradients are split between ranks.
  Group group{{}, false};
  if (context.strategy.mp > 1) group.axes.add(Axis::mp);
  if (context.strategy.pp > 1) group.axes.add(Axis::pp);
  if (!group.axes.empty()) {
    sum.name = "squared_norm.reduced";
    whole = graph.add(sum);
    Op reduce =
        step_op(OpKind::all_reduce, {norm}, {whole}, CollectiveParams{group, Reduction::sum});
    reduce.stream = Stream::world;
    graph.ops.push_back(std::move(reduce));
  }
  graph.ops.push_back(
      step_op(OpKind::clip_factor, {whole, scalars}, {scalars}, ClipParams{context.job.clip_norm}));
  graph.ops.push_back(step_op(OpKind::adamw, {parameters, gradients, first, second, scalars},
                              {parameters, first, second},
                              AdamParams{optimizer.learning_rate, optimizer.beta1, optimizer.beta2,
                                         optimizer.epsilon, optimizer.weight_decay}));
  return true;
}

}  // namespace plimsoll
