// Once-per-step ops, arenas and scalars are made and found here.
#include "passes/graph/step_ops.h"

#include "base/error.h"
#include "passes/graph/rewrite.h"

namespace plimsoll {

Op step_op(OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
           OpParams params) {
  return op_of(Phase::optimizer, {}, kind, std::move(inputs), std::move(outputs),
               std::move(params));
}

Tensor step_tensor(std::string name, Shape shape) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.shape = std::move(shape);
  return tensor;
}

TensorId add_step_arena(Graph& graph, std::string name, TensorRole role, std::int64_t elements,
                        DType dtype) {
  Tensor tensor = step_tensor(std::move(name), {elements});
  tensor.role = role;
  tensor.dtype = dtype;
  tensor.arena = true;
  return graph.add(std::move(tensor));
}

TensorId find_scalars(const Graph& graph) {
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    if (tensor.role == TensorRole::scalar && !tensor.element && !tensor.block) return TensorId(i);
  }
  INVARIANT(false, "a graph has step scalars");
}

namespace {

std::optional<TensorId> arena_of(const Graph& graph, TensorRole role) {
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    if (tensor.arena && tensor.role == role) return TensorId(i);
  }
  return std::nullopt;
}

}  // namespace

std::optional<TensorId> gradient_arena(const Graph& graph) {
  return arena_of(graph, TensorRole::gradient);
}

std::optional<TensorId> updating_gradients(const Graph& graph) {
  const auto summed = gradient_arena(graph);
  for (const Op& op : graph.ops) {
    if (summed && op.kind == OpKind::cast && op.inputs[0] == *summed) return op.outputs[0];
  }
  return summed;
}

std::optional<TensorId> parameter_arena(const Graph& graph) {
  return arena_of(graph, TensorRole::parameter);
}

std::optional<std::size_t> find_step_op(const Graph& graph, OpKind kind) {
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    if (graph.ops[i].kind == kind && graph.ops[i].phase == Phase::optimizer) return i;
  }
  return std::nullopt;
}

namespace {

/// Puts an all-reduce before the op at `reader`, on its first input.
void reduce_before(Graph& graph, std::size_t reader, Axis axis, Reduction reduction) {
  const TensorId value = graph.ops[reader].inputs[0];
  Tensor reduced = graph.at(value);
  reduced.name += "." + std::string(to_text(axis));
  Op reduce = step_op(OpKind::all_reduce, {value}, {graph.add(std::move(reduced))},
                      CollectiveParams{Group{{axis}}, reduction});
  reduce.stream = Stream::world;
  graph.ops[reader].inputs[0] = reduce.outputs[0];
  graph.ops.insert(graph.ops.begin() + std::ptrdiff_t(reader), std::move(reduce));
}

/// Adds the axis to the all-reduce before `reader`, where there is one already, so that one serves
/// all axes.
void reduce_jointly_before(Graph& graph, std::size_t reader, Axis axis) {
  Op& before = graph.ops[reader - 1];
  if (before.kind == OpKind::all_reduce) {
    std::get<CollectiveParams>(before.params).group.axes.add(axis);
  } else {
    reduce_before(graph, reader, axis, Reduction::sum);
  }
}

}  // namespace

void reduce_norms_over(Graph& graph, Axis axis) {
  if (const auto reader = find_step_op(graph, OpKind::clip_factor)) {
    reduce_jointly_before(graph, *reader, axis);
    return;
  }
  // One all-reduce follows the other, in the order of the axes.
  if (const auto reader = find_step_op(graph, OpKind::square_root))
    reduce_before(graph, *reader, axis, Reduction::sum);
  if (const auto reader = find_step_op(graph, OpKind::update_loss_scale))
    reduce_before(graph, *reader - 1, axis, Reduction::max);
}

void reduce_tensor_norms_over(Graph& graph, Axis axis) {
  const auto reader = find_step_op(graph, OpKind::lamb);
  if (!reader) return;
  Op& before = graph.ops[*reader - 1];
  if (before.kind == OpKind::all_reduce) {
    std::get<CollectiveParams>(before.params).group.axes.add(axis);
    return;
  }
  Op reduce = step_op(OpKind::all_reduce, {before.outputs[2]}, {before.outputs[2]},
                      CollectiveParams{Group{{axis}}, Reduction::sum});
  reduce.stream = Stream::world;
  graph.ops.insert(graph.ops.begin() + std::ptrdiff_t(*reader), std::move(reduce));
}

bool is_matrix(const Tensor& parameter) { return parameter.decay && parameter.shape.size() > 1; }

bool has_muon(const Graph& graph, const Job& job, TensorId parameter) {
  const Tensor& tensor = graph.at(parameter);
  return job.optimizer.kind == OptimizerKind::muon && is_matrix(tensor) &&
         graph.at(*tensor.block).kind == BlockKind::layer;
}

Shape moment_shape(const Job& job, const Tensor& parameter, std::size_t moment) {
  const Shape& shape = parameter.shape;
  if (job.optimizer.kind != OptimizerKind::adafactor) return shape;
  if (!is_matrix(parameter)) return moment == 0 ? shape : Shape{1};
  return moment == 0 ? Shape{shape[0]} : Shape(shape.begin() + 1, shape.end());
}

std::int64_t moment_elements(const Graph& graph, const Job& job, TensorId parameter,
                             std::size_t moment) {
  if (moment == 1 && has_muon(graph, job, parameter)) return 0;
  return elements(moment_shape(job, graph.at(parameter), moment));
}

double weight_decay(const Tensor& parameter, const Optimizer& optimizer) {
  return parameter.weight_decay.value_or(parameter.decay ? optimizer.weight_decay : 0);
}

AdamParams adam_params(const Optimizer& optimizer) {
  AdamParams params;
  params.learning_rate = optimizer.learning_rate;
  params.beta1 = optimizer.beta1;
  params.beta2 = optimizer.beta2;
  params.epsilon = optimizer.epsilon;
  params.weight_decay = optimizer.weight_decay;
  return params;
}

SgdParams sgd_params(const Optimizer& optimizer) {
  SgdParams params;
  params.learning_rate = optimizer.learning_rate;
  params.momentum = optimizer.momentum;
  params.weight_decay = optimizer.weight_decay;
  return params;
}

LambParams lamb_params(const Optimizer& optimizer) {
  LambParams params;
  params.learning_rate = optimizer.learning_rate;
  params.beta1 = optimizer.beta1;
  params.beta2 = optimizer.beta2;
  params.epsilon = optimizer.epsilon;
  params.weight_decay = optimizer.weight_decay;
  return params;
}

}  // namespace plimsoll
