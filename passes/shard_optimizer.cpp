// Both ways to combine the gradients of ranks that saw different sequences: data_parallel and
// shard_optimizer.
#include <algorithm>

#include "base/error.h"
#include "passes/passes.h"

namespace plimsoll {

namespace {

std::size_t find(const Graph& graph, OpKind kind) {
  const auto found = std::find_if(graph.ops.begin(), graph.ops.end(),
                                  [&](const Op& op) { return op.kind == kind; });
  INVARIANT(found != graph.ops.end(), "no " + std::string(to_text(kind)) + " in the graph");
  return std::size_t(found - graph.ops.begin());
}

Op arena_collective(OpKind kind, TensorId arena, Axis axis) {
  Op op;
  op.kind = kind;
  op.phase = Phase::optimizer;
  op.stream = Stream::data;
  op.inputs = op.outputs = {arena};
  op.params = CollectiveParams{Group{{axis}, false}, Reduction::sum};
  return op;
}

void insert_at(Graph& graph, std::size_t index, Op op) {
  graph.ops.insert(graph.ops.begin() + std::ptrdiff_t(index), std::move(op));
}

/// Each rank sums the squares of its own part only, so the norm is summed over the axis too.
void reduce_norm_over(Graph& graph, Axis axis) {
  const std::size_t norm = find(graph, OpKind::squared_norm);
  Op& next = graph.ops[norm + 1];
  if (next.kind == OpKind::all_reduce) {
    std::get<CollectiveParams>(next.params).group.axes.add(axis);
    return;
  }
  Tensor reduced = graph.at(graph.ops[norm].outputs[0]);
  reduced.name += ".reduced";
  Op reduce = arena_collective(OpKind::all_reduce, graph.ops[norm].outputs[0], axis);
  reduce.stream = Stream::world;
  reduce.outputs = {graph.add(std::move(reduced))};
  graph.ops[find(graph, OpKind::clip_factor)].inputs[0] = reduce.outputs[0];
  insert_at(graph, norm + 1, std::move(reduce));
}

}  // namespace

bool data_parallel(Graph& graph, const PassContext& context) {
  if (context.strategy.dp == 1) return false;
  graph.grid.degree[std::size_t(Axis::dp)] = context.strategy.dp;
  const std::size_t norm = find(graph, OpKind::squared_norm);
  insert_at(graph, norm, arena_collective(OpKind::all_reduce, graph.ops[norm].inputs[0], Axis::dp));
  return true;
}

bool shard_optimizer(Graph& graph, const PassContext& context) {
  if (context.strategy.sharding_stage == 0) return false;
  const std::int64_t degree = context.strategy.sharding_degree;
  graph.grid.degree[std::size_t(Axis::sharding)] = degree;
  reduce_norm_over(graph, Axis::sharding);
  const std::size_t norm = find(graph, OpKind::squared_norm);
  const TensorId gradients = graph.ops[norm].inputs[0];
  graph.ops[norm].params = FlatParams{degree};
  // Scatter before the outer all-reduce, so that only a part travels there.
  insert_at(graph, context.strategy.dp > 1 ? norm - 1 : norm,
            arena_collective(OpKind::reduce_scatter, gradients, Axis::sharding));
  const std::size_t update = find(graph, OpKind::adamw);
  for (TensorId id : graph.ops[update].inputs) {
    Tensor& owned = graph.at(id);
    if (owned.role != TensorRole::optimizer_state) continue;
    owned.shape[0] = (owned.shape[0] + degree - 1) / degree;
  }
  insert_at(graph, update + 1,
            arena_collective(OpKind::all_gather, graph.ops[update].outputs[0], Axis::sharding));
  return true;
}

}  // namespace plimsoll
