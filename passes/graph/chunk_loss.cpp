// The head and its loss work on a part of a micro-batch's tokens, forward and backward in one call.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "passes/graph/passes.h"

namespace plimsoll {

namespace {

/// Returns the tensors of the head whose first dimension counts tokens: its input, the targets, and
/// what is computed from them, without gradients of parameters.
std::set<TensorId> rows_of_head(const Graph& graph, BlockId head) {
  std::set<TensorId> rows = {*graph.at(head).input};
  for (const Op& op : graph.ops) {
    if (op.block != head || op.phase == Phase::optimizer) continue;
    const bool of_rows =
        op.kind == OpKind::load_targets ||
        std::ranges::any_of(op.inputs, [&](TensorId id) { return rows.contains(id); });
    if (!of_rows) continue;
    for (const TensorId id : op.outputs) {
      const Tensor& tensor = graph.at(id);
      if (!tensor.gradient_of && tensor.role != TensorRole::scalar) rows.insert(id);
    }
  }
  return rows;
}

}  // namespace

bool chunk_loss(Graph& graph, const PassContext& context) {
  const std::int64_t chunks = context.strategy.loss_chunks;
  if (chunks == 1) return false;
  const auto head = std::ranges::find(graph.blocks, BlockKind::head, &Block::kind);
  INVARIANT(head != graph.blocks.end(), "a model has a head");
  head->parts = chunks;
  const BlockId id(std::size_t(head - graph.blocks.begin()));
  for (const TensorId row : rows_of_head(graph, id)) {
    Tensor& tensor = graph.at(row);
    INVARIANT(tensor.shape.at(0) % chunks == 0, tensor.name + " has no equal parts");
    tensor.shape[0] /= chunks;
  }
  for (Op& op : graph.ops) {
    if (op.block != id || op.kind != OpKind::load_targets) continue;
    auto& params = std::get<DataParams>(op.params);
    params.parts = chunks;
    params.ranks = context.strategy.tokens.sequence_parallel ? context.strategy.mp : 1;
  }
  for (Tensor& tensor : graph.tensors) {  // the same call reads it
    if (tensor.block == id && tensor.role == TensorRole::saved)
      tensor.role = TensorRole::activation;
  }
  return true;
}

}  // namespace plimsoll
