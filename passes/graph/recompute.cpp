// Forward ops are copied into backward for layers that recompute.
#include <algorithm>
#include <map>
#include <set>

#include "graph/op_table.h"
#include "passes/graph/passes.h"

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

/// Returns whether an op is in the attention core: the products, the cap of scores, the softmax and
/// its dropout between query, key, value and the context.
bool in_attention_core(const Graph& graph, const std::vector<Op>& ops, const Op& op) {
  if (op.kind == OpKind::softmax || op.kind == OpKind::soft_cap) return true;
  if (op.kind == OpKind::dropout || op.kind == OpKind::masked_dropout) {
    return std::any_of(ops.begin(), ops.end(), [&](const Op& other) {
      return other.kind == OpKind::softmax && other.outputs[0] == op.inputs[0];
    });
  }
  return op.kind == OpKind::matmul && !is_parameter_value(graph, op.inputs[1]);
}

/// Returns the number of linear layers that one product computes: [n,parts,...].
std::int64_t linear_layers(const Graph& graph, const Op& product) {
  const Shape& shape = graph.at(product.outputs[0]).shape;
  return shape.size() > 2 ? shape[1] : 1;
}

/// Returns the ops whose results per_op keeps: attention, values scattered over mp, and every
/// second linear layer, beginning with the first. An op that works in place on a kept value is kept
/// as well, since the value is then gone. Where several layers share a product, half of the layers
/// (blocks) would keep it: those that are not `odd` do.
std::vector<bool> kept_by_op(const Graph& graph, const std::vector<Op>& forward, bool odd) {
  std::vector<bool> kept;
  std::set<TensorId> values;
  std::int64_t before = 0;  // linear layers
  for (const Op& op : forward) {
    const std::optional<std::size_t> place = in_place(op, graph.tensors);
    bool keeps = op.kind == OpKind::flash_attention || op.kind == OpKind::reduce_scatter ||
                 (place && values.contains(op.inputs[*place]));
    if (op.kind == OpKind::matmul) {
      const std::int64_t layers = linear_layers(graph, op);
      const std::int64_t saved = (before + layers + 1) / 2 - (before + 1) / 2;
      keeps = 2 * saved > layers || (2 * saved == layers && !odd);
      before += layers;
    }
    if (keeps) values.insert(op.outputs.begin(), op.outputs.end());
    kept.push_back(keeps);
  }
  return kept;
}

/// Returns whether an op adds to state of the block, which it must do once.
bool counts(const Graph& graph, const Op& op) {
  const Tensor& output = graph.at(op.outputs[0]);
  return output.role == TensorRole::scalar && output.block;
}

/// Returns, by forward op, whether backward may repeat it.
std::vector<bool> repeatable(const Graph& graph, const std::vector<Op>& forward,
                             Recompute recompute, bool odd) {
  std::vector<bool> may(forward.size(), true);
  if (recompute == Recompute::per_op) {
    may = kept_by_op(graph, forward, odd);
    may.flip();
  }
  for (std::size_t i = 0; i < forward.size(); ++i) {
    if (recompute == Recompute::selective) may[i] = in_attention_core(graph, forward, forward[i]);
    if (runs_once_per_step(graph, forward[i]) || counts(graph, forward[i])) may[i] = false;
  }
  return may;
}

/// Returns the forward ops that backward repeats, in order. Of the ops that it `may` repeat, it
/// repeats those on which a value it reads depends, or all of them (`all`).
std::vector<Op> repeated(const Graph& graph, const BlockOps& ops, const std::vector<bool>& may,
                         bool all) {
  std::set<TensorId> needed;
  for (const Op& op : ops.backward) needed.insert(op.inputs.begin(), op.inputs.end());
  std::vector<Op> again;
  for (auto op = ops.forward.rbegin(); op != ops.forward.rend(); ++op) {
    if (!may[std::size_t(ops.forward.rend() - op) - 1]) continue;
    const bool used = std::any_of(op->outputs.begin(), op->outputs.end(), [&](TensorId id) {
      return needed.contains(id) && graph.at(id).role != TensorRole::scalar;
    });
    if (!used && !all) continue;
    needed.insert(op->inputs.begin(), op->inputs.end());
    again.push_back(*op);
  }
  std::reverse(again.begin(), again.end());
  return again;
}

void recompute_block(Graph& graph, BlockId block, const PassContext& context,
                     std::vector<Op>& out) {
  BlockOps ops = ops_of(graph, block);
  const Recompute kind = context.strategy.recompute;
  const bool odd = graph.at(block).variant_of.has_value();
  // A value that is kept though nothing needs it is represented by an op that reads it.
  const bool all = context.framework.recompute_repeats_all ||
                   (kind == Recompute::per_op && context.framework.keeps_unread);
  std::vector<Op> again = repeated(graph, ops, repeatable(graph, ops.forward, kind, odd), all);
  std::map<TensorId, TensorId> copies;
  const auto rename = [&](Op& op) {
    bool reads_copy = false;
    for (TensorId& id : op.inputs) {
      const auto found = copies.find(id);
      if (found == copies.end()) continue;
      id = found->second;
      reads_copy = true;
    }
    return reads_copy;
  };
  for (Op& op : again) {
    op.phase = Phase::recompute;
    rename(op);
    for (TensorId& id : op.outputs) {
      Tensor copy = graph.at(id);
      copy.name += ".recomputed";
      copy.role = TensorRole::activation;
      id = copies.emplace(id, graph.add(std::move(copy))).first->second;
    }
  }
  for (const auto& [original, copy] : copies) graph.at(original).role = TensorRole::activation;
  // An attention core is repeated where backward first reads it, so that it lives shortly.
  std::size_t first = kind == Recompute::selective ? ops.backward.size() : 0;
  for (std::size_t i = 0; i < ops.backward.size(); ++i) {
    if (rename(ops.backward[i])) first = std::min(first, i);
  }
  out.insert(out.end(), ops.forward.begin(), ops.forward.end());
  const auto before = ops.backward.begin() + std::ptrdiff_t(first);
  out.insert(out.end(), ops.backward.begin(), before);
  out.insert(out.end(), again.begin(), again.end());
  out.insert(out.end(), before, ops.backward.end());
}

/// Adds a copy of a block, with its ops, that shares its parameters and their gradients.
BlockId add_variant(Graph& graph, BlockId of, const std::string& suffix) {
  const BlockId variant(graph.blocks.size());
  Block copy = graph.at(of);
  copy.name += suffix;
  copy.variant_of = of;
  std::map<TensorId, TensorId> copies;
  const std::size_t count = graph.tensors.size();
  for (std::size_t i = 0; i < count; ++i) {
    Tensor tensor = graph.tensors[i];
    if (tensor.block != of || tensor.role == TensorRole::parameter || tensor.gradient_of ||
        tensor.role == TensorRole::workspace || tensor.role == TensorRole::scalar)
      continue;
    tensor.name += suffix;
    tensor.block = variant;
    copies.emplace(TensorId(i), graph.add(std::move(tensor)));
  }
  for (auto* border : {&copy.input, &copy.output, &copy.input_gradient, &copy.output_gradient}) {
    if (*border) *border = copies.at(**border);
  }
  graph.blocks.push_back(std::move(copy));
  std::vector<Op> ops;
  for (Op op : graph.ops) {
    if (op.block != of) continue;
    op.block = variant;
    for (auto* ids : {&op.inputs, &op.outputs}) {
      for (TensorId& id : *ids) {
        if (const auto found = copies.find(id); found != copies.end()) id = found->second;
      }
    }
    ops.push_back(std::move(op));
  }
  graph.ops.insert(graph.ops.end(), ops.begin(), ops.end());
  return variant;
}

bool by_layer(const Strategy& strategy) {
  return strategy.recompute == Recompute::per_op || strategy.recompute_layers > 0 ||
         !strategy.recompute_list.empty();
}

/// Keeps tensors that only repeated ops read, although backward does not read them.
void keep_for_repeated(Graph& graph) {
  std::set<TensorId> forward;
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::forward) forward.insert(op.outputs.begin(), op.outputs.end());
  }
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::recompute) continue;
    for (const TensorId id : op.inputs) {
      if (forward.contains(id) && graph.at(id).role == TensorRole::activation)
        graph.at(id).role = TensorRole::saved;
    }
  }
}

}  // namespace

bool recompute(Graph& graph, const PassContext& context) {
  if (context.strategy.recompute == Recompute::none) return false;
  const bool variants = by_layer(context.strategy);
  if (variants) {
    const std::size_t blocks = graph.blocks.size();
    for (std::size_t b = 0; b < blocks; ++b) {
      if (graph.blocks[b].kind == BlockKind::layer) add_variant(graph, BlockId(b), ".recomputing");
    }
  }
  std::vector<Op> ops;
  bool changed = false;
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    const Block& block = graph.blocks[b];
    const bool all_layers = context.strategy.recompute == Recompute::per_op;
    if (block.kind == BlockKind::layer &&
        (all_layers || block.variant_of.has_value() == variants)) {
      recompute_block(graph, BlockId(b), context, ops);
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
  if (context.strategy.recompute != Recompute::full) keep_for_repeated(graph);
  return changed;
}

}  // namespace plimsoll
