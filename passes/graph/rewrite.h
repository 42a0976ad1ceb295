// Rewriting a graph: what the passes share to make ops next to others and values like others.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace plimsoll {

inline Op op_of(Phase phase, std::optional<BlockId> block, OpKind kind,
                std::vector<TensorId> inputs, std::vector<TensorId> outputs, OpParams params = {},
                Stream stream = Stream::compute) {
  return {kind, phase, stream, block, std::move(inputs), std::move(outputs), std::move(params), {}};
}

/// Makes an op of the phase and the block of another.
inline Op op_near(const Op& near, OpKind kind, std::vector<TensorId> inputs,
                  std::vector<TensorId> outputs, OpParams params = {},
                  Stream stream = Stream::compute) {
  return op_of(near.phase, near.block, kind, std::move(inputs), std::move(outputs),
               std::move(params), stream);
}

/// Adds a tensor that differs from another in its name alone.
inline TensorId add_like(Graph& graph, TensorId id, const std::string& suffix) {
  Tensor tensor = graph.at(id);
  tensor.name += suffix;
  return graph.add(std::move(tensor));
}

inline void rename(std::vector<TensorId>& ids, const std::map<TensorId, TensorId>& names) {
  for (TensorId& id : ids) {
    if (const auto found = names.find(id); found != names.end()) id = found->second;
  }
}

/// Returns the ops of each block, in their order, and then those of none.
inline std::vector<std::vector<Op>> ops_by_block(const Graph& graph) {
  std::vector<std::vector<Op>> ops(graph.blocks.size() + 1);
  for (const Op& op : graph.ops)
    ops[op.block ? op.block->index() : graph.blocks.size()].push_back(op);
  return ops;
}

}  // namespace plimsoll
