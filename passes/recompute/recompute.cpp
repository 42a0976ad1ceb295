// Forward ops are copied into backward for layers that recompute.
#include <algorithm>
#include <map>
#include <set>

#include "graph/op_table.h"
#include "passes/graph/passes.h"
#include "passes/graph/rewrite.h"
#include "passes/recompute/layer_modules.h"

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

/// Forward ops that backward repeats together, before it first needs one of them.
struct Part {
  std::vector<bool> may;  ///< by forward op, whether it is one of them
  bool all = false;       ///< also those on which no value that backward reads depends
};

/// Returns what backward may repeat of a layer. Where it may repeat nothing, there is no part.
std::vector<Part> repeatable(const Graph& graph, const std::vector<Op>& forward,
                             const PassContext& context, bool odd) {
  const bool all = context.framework.parallelism.recompute_repeats_all;
  std::vector<Part> parts;
  switch (context.strategy.recompute) {
    case Recompute::none:
      break;
    case Recompute::full:
      parts.push_back({std::vector<bool>(forward.size(), true), all});
      break;
    case Recompute::per_op:
      // A value that is kept though nothing needs it is represented by an op that reads it.
      parts.push_back(
          {kept_by_op(graph, forward, odd), all || context.framework.parallelism.keeps_unread});
      parts.back().may.flip();
      break;
    case Recompute::selective:
      parts.push_back({std::vector<bool>(forward.size()), all});
      for (std::size_t i = 0; i < forward.size(); ++i)
        parts.back().may[i] = in_attention_core(graph, forward, forward[i]);
      break;
    case Recompute::modules:
      for (LayerModule& module : layer_modules(graph, forward, context.strategy.recomputed.modules))
        parts.push_back({std::move(module.ops), all && is_repeated_whole(module.kind)});
      break;
  }
  for (Part& part : parts) {
    for (std::size_t i = 0; i < forward.size(); ++i) {
      if (runs_once_per_step(graph, forward[i]) || counts(graph, forward[i])) part.may[i] = false;
    }
  }
  return parts;
}

/// An op that backward repeats, as one of a part.
struct Again {
  Op op;
  std::size_t part = 0;
};

/// Returns the forward ops that backward repeats, in order. Of the ops that it may repeat, it
/// repeats those on which a value it reads depends, or all of a part.
std::vector<Again> repeated(const Graph& graph, const BlockOps& ops,
                            const std::vector<Part>& parts) {
  std::set<TensorId> needed;
  for (const Op& op : ops.backward) needed.insert(op.inputs.begin(), op.inputs.end());
  std::vector<Again> again;
  for (std::size_t i = ops.forward.size(); i-- > 0;) {
    const Op& op = ops.forward[i];
    const auto part = std::ranges::find_if(parts, [&](const Part& one) { return one.may[i]; });
    if (part == parts.end()) continue;
    const bool used = std::any_of(op.outputs.begin(), op.outputs.end(), [&](TensorId id) {
      return needed.contains(id) && graph.at(id).role != TensorRole::scalar;
    });
    if (!used && !part->all) continue;
    needed.insert(op.inputs.begin(), op.inputs.end());
    again.push_back({op, std::size_t(part - parts.begin())});
  }
  std::reverse(again.begin(), again.end());
  return again;
}

/// Returns, by part, the index of the backward op before which it is repeated: the first one that
/// reads a copy, or that another part stands before which reads one.
std::vector<std::size_t> places_of(const std::vector<Again>& again, std::size_t parts,
                                   const std::vector<Op>& backward) {
  std::vector<std::size_t> places(parts, backward.size());
  std::map<TensorId, std::size_t> part_of;
  for (const Again& one : again) {
    for (const TensorId id : one.op.outputs) part_of.emplace(id, one.part);
  }
  const auto read_at = [&](const Op& op, std::size_t place) {
    bool moved = false;
    for (const TensorId id : op.inputs) {
      const auto part = part_of.find(id);
      if (part == part_of.end() || places[part->second] <= place) continue;
      places[part->second] = place;
      moved = true;
    }
    return moved;
  };
  for (std::size_t i = 0; i < backward.size(); ++i) read_at(backward[i], i);
  for (bool moved = true; moved;) {
    moved = false;
    for (const Again& one : again) moved = read_at(one.op, places[one.part]) || moved;
  }
  return places;
}

/// Appends the ops of a block to `out`, with those that backward repeats. Returns whether there are
/// any.
bool recompute_block(Graph& graph, BlockId block, const PassContext& context,
                     std::vector<Op>& out) {
  BlockOps ops = ops_of(graph, block);
  const bool odd = graph.at(block).variant_of.has_value();
  const std::vector<Part> parts = repeatable(graph, ops.forward, context, odd);
  std::vector<Again> again = repeated(graph, ops, parts);
  // Attention cores and modules are repeated where backward first reads them, so that they live
  // shortly.
  const Recompute kind = context.strategy.recompute;
  const bool late = kind == Recompute::selective || kind == Recompute::modules;
  const std::vector<std::size_t> places =
      late ? places_of(again, parts.size(), ops.backward) : std::vector<std::size_t>(parts.size());
  std::map<TensorId, TensorId> copies;
  for (Again& one : again) {
    one.op.phase = Phase::recompute;
    rename(one.op.inputs, copies);
    for (TensorId& id : one.op.outputs) {
      id = copies.emplace(id, add_like(graph, id, ".recomputed")).first->second;
      graph.at(id).role = TensorRole::activation;
    }
  }
  for (const auto& [original, copy] : copies) graph.at(original).role = TensorRole::activation;
  out.insert(out.end(), ops.forward.begin(), ops.forward.end());
  for (std::size_t i = 0; i <= ops.backward.size(); ++i) {
    for (const Again& one : again) {
      if (places[one.part] == i) out.push_back(one.op);
    }
    if (i == ops.backward.size()) break;
    rename(ops.backward[i].inputs, copies);
    out.push_back(std::move(ops.backward[i]));
  }
  return !again.empty();
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
    if (tensor.block != of || is_one_parameter(tensor) || tensor.gradient_of ||
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
    rename(op.inputs, copies);
    rename(op.outputs, copies);
    ops.push_back(std::move(op));
  }
  graph.ops.insert(graph.ops.end(), ops.begin(), ops.end());
  return variant;
}

bool by_layer(const Strategy& strategy) {
  return strategy.recompute == Recompute::per_op || strategy.recomputed.layers > 0 ||
         !strategy.recomputed.list.empty();
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
  const std::vector<std::vector<Op>> by_block = ops_by_block(graph);
  std::vector<Op> ops;
  bool changed = false;
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    const Block& block = graph.blocks[b];
    const bool all_layers = context.strategy.recompute == Recompute::per_op;
    if (block.kind == BlockKind::layer &&
        (all_layers || block.variant_of.has_value() == variants)) {
      changed = recompute_block(graph, BlockId(b), context, ops) || changed;
      continue;
    }
    ops.insert(ops.end(), by_block[b].begin(), by_block[b].end());
  }
  ops.insert(ops.end(), by_block.back().begin(), by_block.back().end());
  if (!changed && !variants) return false;
  graph.ops = std::move(ops);
  if (context.strategy.recompute != Recompute::full) keep_for_repeated(graph);
  return true;
}

}  // namespace plimsoll
