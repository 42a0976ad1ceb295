// Both ways to combine the gradients of ranks that saw different sequences: data_parallel and
// shard_optimizer.
#include <algorithm>

#include "base/error.h"
#include "passes/passes.h"
#include "passes/step_ops.h"

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

/// Where what replicas do with gradients begins: mp ranks have summed theirs.
std::size_t after_zeroing(const Graph& graph) {
  std::size_t index = find(graph, OpKind::fill) + 1;
  while (graph.ops[index].stream == Stream::mp) ++index;
  return index;
}

void insert_at(Graph& graph, std::size_t index, Op op) {
  graph.ops.insert(graph.ops.begin() + std::ptrdiff_t(index), std::move(op));
}

}  // namespace

bool data_parallel(Graph& graph, const PassContext& context) {
  if (context.strategy.dp == 1) return false;
  graph.grid.degree[std::size_t(Axis::dp)] = context.strategy.dp;
  const auto gradients = gradient_arena(graph);
  INVARIANT(gradients, "replicas have gradients to sum");
  insert_at(graph, after_zeroing(graph),
            arena_collective(OpKind::all_reduce, *gradients, Axis::dp));
  return true;
}

bool shard_optimizer(Graph& graph, const PassContext& context) {
  if (context.strategy.sharding_stage == 0) return false;
  const std::int64_t degree = context.strategy.sharding_degree;
  graph.grid.degree[std::size_t(Axis::sharding)] = degree;
  const auto gradients = gradient_arena(graph);
  INVARIANT(gradients, "shards have gradients to scatter");
  // Each rank sums the squares of its own part only, and cuts go through tensors.
  reduce_norms_over(graph, Axis::sharding);
  reduce_tensor_norms_over(graph, Axis::sharding);
  std::get<FlatParams>(graph.ops[find(graph, OpKind::squared_norm)].params).shards = degree;
  // Scatter before the outer all-reduce, so that only a part travels there.
  insert_at(graph, after_zeroing(graph),
            arena_collective(OpKind::reduce_scatter, *gradients, Axis::sharding));
  for (Tensor& owned : graph.tensors) {
    if (owned.role != TensorRole::optimizer_state) continue;
    owned.shape[0] = (owned.shape[0] + degree - 1) / degree;
  }
  // After the update, which comes last.
  graph.ops.push_back(
      arena_collective(OpKind::all_gather, graph.ops.back().outputs[0], Axis::sharding));
  return true;
}

}  // namespace plimsoll
