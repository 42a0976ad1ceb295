// Ops of a backward are divided by what depends on them.
#include "passes/cut/split_backward.h"

#include <algorithm>
#include <set>

#include "graph/op_table.h"

namespace plimsoll {

namespace {

/// Adds to `needed` all values from which its members are computed. Returns which ops compute any
/// of them.
std::vector<bool> ancestors(const std::vector<Op>& ops, std::set<TensorId>& needed) {
  std::vector<bool> found(ops.size());
  for (std::size_t i = ops.size(); i-- > 0;) {
    const Op& op = ops[i];
    found[i] = std::any_of(op.outputs.begin(), op.outputs.end(),
                           [&](TensorId id) { return needed.contains(id); });
    if (!found[i]) continue;
    needed.insert(op.inputs.begin(), op.inputs.end());
    for (std::size_t o = 0; o < op.outputs.size(); ++o) {
      if (accumulates(op, o)) needed.insert(op.outputs[o]);  // what it adds to
    }
  }
  return found;
}

/// Returns the outputs of ops outside `input` that read values which ops of `input` overwrite.
std::vector<TensorId> overtaken(const Graph& graph, const std::vector<Op>& ops,
                                const std::vector<bool>& input) {
  std::set<TensorId> overwritten;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const std::optional<std::size_t> reused = in_place(ops[i], graph.tensors);
    if (input[i] && reused) overwritten.insert(ops[i].inputs[*reused]);
  }
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (input[i]) continue;
    const bool reads = std::any_of(ops[i].inputs.begin(), ops[i].inputs.end(),
                                   [&](TensorId id) { return overwritten.contains(id); });
    if (reads) return ops[i].outputs;
  }
  return {};
}

}  // namespace

BackwardParts split_backward(const Graph& graph, BlockId block, const std::vector<Op>& backward) {
  std::set<TensorId> needed;
  if (const auto gradient = graph.at(block).input_gradient) needed.insert(*gradient);
  std::vector<bool> input = ancestors(backward, needed);
  const auto more = [&] { return overtaken(graph, backward, input); };
  for (auto outputs = more(); !outputs.empty(); outputs = more()) {
    needed.insert(outputs.begin(), outputs.end());
    input = ancestors(backward, needed);
  }
  BackwardParts parts;
  for (std::size_t i = 0; i < backward.size(); ++i) {
    (input[i] ? parts.input : parts.weight).push_back(backward[i]);
    if (!input[i] && backward[i].phase == Phase::backward) {
      parts.weight.back().phase = Phase::backward_weight;
    }
  }
  return parts;
}

}  // namespace plimsoll
