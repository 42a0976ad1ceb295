// Ranks that saw different sequences combine their gradients in two ways: data_parallel and
// shard_optimizer. The phase of an arena collective says how often it runs: `optimizer` means once
// per step; `backward` and `forward` mean in every micro-batch where its part of the arena is used.
#include "base/error.h"
#include "passes/graph/passes.h"
#include "passes/graph/rewrite.h"
#include "passes/graph/step_ops.h"
#include "passes/strategy/sharding_rules.h"

namespace plimsoll {

namespace {

/// Returns the index of the first op of this kind that runs once per step. There has to be one.
std::size_t existing_step_op(const Graph& graph, OpKind kind) {
  const auto found = find_step_op(graph, kind);
  INVARIANT(found, "no " + std::string(to_text(kind)) + " in the graph");
  return *found;
}

Op arena_collective(OpKind kind, TensorId arena, AxisSet axes) {
  return op_of(Phase::optimizer, {}, kind, {arena}, {arena},
               CollectiveParams{Group{axes}, Reduction::sum}, Stream::data);
}

/// Returns where replicas begin to combine gradients; mp ranks have summed theirs before.
std::size_t after_zeroing(const Graph& graph) {
  std::size_t index = existing_step_op(graph, OpKind::begin_step) + 1;
  while (graph.ops[index].stream == Stream::mp || graph.ops[index].kind == OpKind::fill) ++index;
  return index;
}

void insert_at(Graph& graph, std::size_t index, Op op) {
  graph.ops.insert(graph.ops.begin() + std::ptrdiff_t(index), std::move(op));
}

/// Adds an arena beside the persistent one.
TensorId add_beside(Graph& graph, TensorId arena, const char* name, TensorRole role,
                    std::int64_t elements) {
  Tensor tensor = graph.at(arena);
  tensor.name = name;
  tensor.role = role;
  tensor.shape = {elements};
  return graph.add(std::move(tensor));
}

/// Adds gradients of one micro-batch, which are reduced while backward runs. The part of the sum
/// that the rank keeps is added to the gradient arena.
Op reduced_in_every_micro_batch(Graph& graph, OpKind kind, TensorId gradients, AxisSet axes,
                                std::int64_t elements) {
  Op op = arena_collective(kind, gradients, axes);
  op.phase = Phase::backward;
  op.inputs = op.outputs = {
      add_beside(graph, gradients, "micro_batch_gradients", TensorRole::gradient, elements)};
  return op;
}

/// In sharding stage 3 a part of the parameters persists, and the whole is gathered where it is
/// used; or parameters of other owners are broadcast into memory of their own.
void gather_where_used(Graph& graph, OpKind kind, TensorId parameters, const Strategy& strategy) {
  const std::int64_t degree = optimizer_shards(strategy);
  Tensor& kept = graph.at(parameters);
  kept.shape[0] = (kept.shape[0] + degree - 1) / degree;
  const std::int64_t whole = kept.shape[0] * degree;
  Op op = arena_collective(kind, parameters, shard_axes(strategy));
  op.phase = Phase::forward;
  if (kind == OpKind::all_gather) {
    op.outputs = {
        add_beside(graph, parameters, "gathered_parameters", TensorRole::communication, whole)};
  }
  insert_at(graph, 0, std::move(op));
}

}  // namespace

bool data_parallel(Graph& graph, const PassContext& context) {
  const Strategy& strategy = context.strategy;
  const bool unsharded = strategy.sharding_stage == 0;
  AxisSet axes;  // of cp, too, where that does not share out the update
  if (sums_whole_gradients(context)) axes = shard_axes(strategy);
  if (unsharded && strategy.cp > 1) axes.add(Axis::cp);
  if (strategy.dp > 1) axes.add(Axis::dp);
  if (axes.empty()) return false;
  graph.grid.degree[std::size_t(Axis::dp)] = context.strategy.dp;
  const auto gradients = gradient_arena(graph);
  INVARIANT(gradients, "replicas have gradients to sum");
  Op reduce = arena_collective(OpKind::all_reduce, *gradients, axes);
  if (unsharded && reduces_per_micro_batch(strategy)) {
    reduce = reduced_in_every_micro_batch(graph, OpKind::all_reduce, *gradients, axes,
                                          graph.at(*gradients).shape[0]);
  }
  insert_at(graph, after_zeroing(graph), std::move(reduce));
  return true;
}

bool shard_optimizer(Graph& graph, const PassContext& context) {
  const std::int64_t degree = optimizer_shards(context.strategy);
  if (degree == 1) return false;
  const AxisSet axes = shard_axes(context.strategy);
  graph.grid.degree[std::size_t(Axis::sharding)] = context.strategy.sharding_degree;
  const auto gradients = gradient_arena(graph);
  const auto parameters = parameter_arena(graph);
  INVARIANT(gradients && parameters, "shards have gradients to scatter");
  const auto part_of = [&](std::int64_t elements) { return (elements + degree - 1) / degree; };
  const bool parts = context.strategy.sharding_stage >= 2;  // what persists of the gradients
  // Equal parts of the elements, which cut through tensors, or, bucket by bucket, whole tensors.
  const bool whole = classes_by_owner(context.strategy);
  // Each rank sums the squares of its own part only.
  for (const Axis axis : {Axis::cp, Axis::sharding}) {
    if (axes.has(axis)) reduce_norms_over(graph, axis);
  }
  if (!whole) {
    for (const Axis axis : {Axis::cp, Axis::sharding}) {
      if (axes.has(axis)) reduce_tensor_norms_over(graph, axis);
    }
    if (const auto norm = find_step_op(graph, OpKind::squared_norm))
      std::get<FlatParams>(graph.ops[*norm].params).shards = parts ? 1 : degree;
  }
  const OpKind to_owners = whole ? OpKind::reduce : OpKind::reduce_scatter;
  const OpKind from_owners = whole ? OpKind::broadcast : OpKind::all_gather;
  Op scatter = arena_collective(to_owners, *gradients, axes);
  if (parts) {
    const Shape whole_arena = graph.at(*gradients).shape;
    const std::int64_t part = part_of(whole_arena[0]);
    for (Tensor& tensor : graph.tensors) {  // gradients, and what the update makes of them
      const bool of_gradients =
          tensor.role == TensorRole::gradient || tensor.role == TensorRole::activation;
      if (tensor.arena && of_gradients && tensor.shape == whole_arena) tensor.shape[0] = part;
    }
    scatter = reduced_in_every_micro_batch(graph, to_owners, *gradients, axes, part * degree);
  }
  // Before the outer all-reduce, so that only what a rank updates travels there.
  if (!sums_whole_gradients(context)) insert_at(graph, after_zeroing(graph), std::move(scatter));
  for (Tensor& owned : graph.tensors) {
    if (!owned.arena || owned.role != TensorRole::optimizer_state) continue;
    owned.shape[0] = part_of(owned.shape[0]);
  }
  if (const auto update = find_step_op(graph, OpKind::adamw_8bit)) {
    const std::vector<TensorId>& inputs = graph.ops[*update].inputs;
    graph.at(inputs[4]).shape = {2 * moment_blocks(graph.at(inputs[2]).shape[0])};
  }
  if (context.strategy.sharding_stage == 3) {
    gather_where_used(graph, from_owners, *parameters, context.strategy);
  } else {  // after the update, which comes last
    graph.ops.push_back(arena_collective(from_owners, *parameters, axes));
  }
  return true;
}

}  // namespace plimsoll
