#include <map>
#include <set>

#include "passes/passes.h"

namespace plimsoll {

namespace {

struct BlockOps {
  std::vector<Op> forward, backward;
};

BlockOps ops_of(const Graph& graph, BlockId block) {
  BlockOps found;
  for (const Op& op : graph.ops) {
    if (op.block == block)
      (op.phase == Phase::forward ? found.forward : found.backward).push_back(op);
  }
  return found;
}

/// The forward ops that backward needs again, in order: those that some saved value depends on.
std::vector<Op> needed_again(const Graph& graph, const BlockOps& ops) {
  std::set<TensorId> needed;
  for (const Op& op : ops.backward) needed.insert(op.inputs.begin(), op.inputs.end());
  std::vector<Op> again;
  for (auto op = ops.forward.rbegin(); op != ops.forward.rend(); ++op) {
    bool used = false;
    for (TensorId id : op->outputs)
      used = used || (needed.contains(id) && graph.at(id).role != TensorRole::scalar);
    if (!used) continue;
    needed.insert(op->inputs.begin(), op->inputs.end());
    again.insert(again.begin(), *op);
  }
  return again;
}

void recompute_block(Graph& graph, BlockId block, std::vector<Op>& out) {
  BlockOps ops = ops_of(graph, block);
  std::vector<Op> again = needed_again(graph, ops);
  std::map<TensorId, TensorId> copies;
  for (Op& op : again) {
    op.phase = Phase::recompute;
    for (TensorId& id : op.inputs) {
      if (const auto found = copies.find(id); found != copies.end()) id = found->second;
    }
    for (TensorId& id : op.outputs) {
      Tensor copy = graph.at(id);
      copy.name += ".recomputed";
      copy.role = TensorRole::activation;
      id = copies.emplace(id, graph.add(std::move(copy))).first->second;
    }
  }
  for (const auto& [original, copy] : copies) graph.at(original).role = TensorRole::activation;
  for (Op& op : ops.backward) {
    for (TensorId& id : op.inputs) {
      if (const auto found = copies.find(id); found != copies.end()) id = found->second;
    }
  }
  for (const auto* part : {&ops.forward, &again, &ops.backward})
    out.insert(out.end(), part->begin(), part->end());
}

}  // namespace

bool recompute(Graph& graph, const PassContext& context) {
  if (context.strategy.recompute == Recompute::none) return false;
  std::vector<Op> ops;
  bool changed = false;
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    if (graph.blocks[b].kind == BlockKind::layer) {
      recompute_block(graph, BlockId(b), ops);
      changed = true;
      continue;
    }
    for (const Op& op : graph.ops) {
      if (op.block == BlockId(b)) ops.push_back(op);
    }
  }
  for (const Op& op : graph.ops) {
    if (!op.block) ops.push_back(op);
  }
  graph.ops = std::move(ops);
  return changed;
}

}  // namespace plimsoll
