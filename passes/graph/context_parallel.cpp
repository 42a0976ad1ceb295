// The first half of context parallelism: each rank of a group of cp has a part of every sequence.
#include <vector>

#include "base/error.h"
#include "passes/graph/passes.h"

namespace plimsoll {

namespace {

void divide(std::int64_t& extent, std::int64_t degree, const std::string& name) {
  INVARIANT(extent % degree == 0, name + " does not split by tokens");
  extent /= degree;
}

}  // namespace

bool context_parallel(Graph& graph, const PassContext& context) {
  const std::int64_t degree = context.strategy.cp;
  if (degree == 1) return false;
  graph.grid.degree[std::size_t(Axis::cp)] = degree;
  std::vector<std::size_t> tokens(graph.tensors.size());  // the dimension; mostly rows
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::flash_attention) tokens[op.outputs[1].index()] = 2;  // [b,a,s]
  }
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    Tensor& tensor = graph.tensors[i];
    if (!tensor.block || tensor.role != TensorRole::activation) continue;
    divide(tensor.shape[tokens[i]], degree, tensor.name);
  }
  for (Op& op : graph.ops) {
    INVARIANT(op.kind != OpKind::softmax, "scores in memory need whole sequences");
    if (auto* data = std::get_if<DataParams>(&op.params)) divide(data->sequence, degree, "data");
    if (auto* rotary = std::get_if<RotaryParams>(&op.params))
      divide(rotary->sequence, degree, "positions");
    if (auto* attention = std::get_if<AttentionParams>(&op.params))
      divide(attention->sequence, degree, "attention");
  }
  return true;
}

}  // namespace plimsoll
