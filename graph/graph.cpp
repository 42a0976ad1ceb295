// Graphs are counted and cleaned up, and the names of block kinds are listed.
#include "graph/graph.h"

#include <algorithm>

#include "base/error.h"

namespace plimsoll {

namespace {
constexpr std::array<std::string_view, 4> kBlockKinds = {"embedding", "layer", "join", "head"};

template <class Counts>
std::int64_t count_of(const Graph& graph, Counts counts) {
  std::int64_t count = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (!is_one_parameter(tensor) || tensor.tied_to || !counts(tensor)) continue;
    INVARIANT(!tensor.split || tensor.split->degree == 1,
              "parameters are counted before they are split");
    count += parameter_elements(tensor) * graph.at(*tensor.block).count;
  }
  return count;
}

}  // namespace

std::int64_t parameter_count(const Graph& graph) {
  return count_of(graph, [](const Tensor&) { return true; });
}

std::int64_t trained_parameter_count(const Graph& graph) {
  return count_of(graph, [](const Tensor& one) { return one.role == TensorRole::parameter; });
}

bool runs_once_per_step(const Graph& graph, const Op& op) {
  return op.block && !op.outputs.empty() && graph.at(op.outputs[0]).role == TensorRole::workspace;
}

bool is_parameter_value(const Graph& graph, TensorId id) {
  if (is_one_parameter(graph.at(id))) return true;
  return std::any_of(graph.ops.begin(), graph.ops.end(), [&](const Op& op) {
    const bool copies = op.kind == OpKind::cast || op.kind == OpKind::unpack_weight;
    return copies && op.outputs[0] == id && is_one_parameter(graph.at(op.inputs[0]));
  });
}

void remove_unused_tensors(Graph& graph) {
  std::vector<bool> used(graph.tensors.size());
  const auto mark = [&](const std::optional<TensorId>& id) {
    if (id) used[id->index()] = true;
  };
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    const bool kept =
        is_of_parameters(tensor.role) || (tensor.role == TensorRole::scalar && !tensor.element);
    const bool lasts = tensor.arena && tensor.role != TensorRole::activation;
    if (kept || lasts) used[i] = true;
  }
  for (const Op& op : graph.ops) {
    for (TensorId id : op.inputs) mark(id);
    for (TensorId id : op.outputs) mark(id);
  }
  for (const Block& block : graph.blocks) {
    for (const auto& border :
         {block.input, block.output, block.input_gradient, block.output_gradient})
      mark(border);
  }
  std::vector<TensorId> renumbered(graph.tensors.size());
  std::vector<Tensor> kept;
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    if (!used[i]) continue;
    renumbered[i] = TensorId(kept.size());
    kept.push_back(std::move(graph.tensors[i]));
  }
  graph.tensors = std::move(kept);
  const auto renumber = [&](std::optional<TensorId>& id) {
    if (id) id = renumbered[id->index()];
  };
  for (Tensor& tensor : graph.tensors) {
    renumber(tensor.gradient_of);
    renumber(tensor.tied_to);
  }
  for (Op& op : graph.ops) {
    for (TensorId& id : op.inputs) id = renumbered[id.index()];
    for (TensorId& id : op.outputs) id = renumbered[id.index()];
  }
  for (Block& block : graph.blocks) {
    for (auto* border :
         {&block.input, &block.output, &block.input_gradient, &block.output_gradient})
      renumber(*border);
  }
}

std::string_view to_text(BlockKind kind) { return kBlockKinds[std::size_t(kind)]; }

}  // namespace plimsoll
