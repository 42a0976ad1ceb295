// Finds the reads and casts of parameters.
#include "passes/graph/parameter_casts.h"

#include <map>

namespace plimsoll {

bool is_parameter(const Tensor& tensor) {
  return tensor.role == TensorRole::parameter && !tensor.arena;
}

TensorId owner_of(const Graph& graph, TensorId id) { return graph.at(id).tied_to.value_or(id); }

bool casts_parameter(const Graph& graph, const Op& op) {
  return op.kind == OpKind::cast && is_parameter(graph.at(op.inputs[0]));
}

std::vector<ParameterRead> parameters_read(const Graph& graph) {
  std::map<TensorId, ParameterRead> found;
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::optimizer) continue;
    for (const TensorId id : op.inputs) {
      if (!is_parameter(graph.at(id))) continue;
      const TensorId parameter = owner_of(graph, id);
      ParameterRead& entry =
          found.try_emplace(parameter, ParameterRead{parameter, {}, 0}).first->second;
      const bool cast = casts_parameter(graph, op);
      if (cast && !entry.twin) entry.twin = op.outputs[0];
      if (!cast || graph.at(op.outputs[0]).dtype != graph.at(*entry.twin).dtype) ++entry.other_uses;
    }
  }
  std::vector<ParameterRead> result;
  for (const auto& [parameter, entry] : found) result.push_back(entry);
  return result;
}

std::optional<TensorId> parameter_of(const Graph& graph, TensorId id) {
  if (is_parameter(graph.at(id))) return owner_of(graph, id);
  for (const Op& op : graph.ops) {
    if (casts_parameter(graph, op) && op.outputs[0] == id) return owner_of(graph, op.inputs[0]);
  }
  return std::nullopt;
}

}  // namespace plimsoll
