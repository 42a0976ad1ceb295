// Which parameters the groups of an optimizer match, and what they change.
#include <fmt/format.h>

#include <map>

#include "base/error.h"
#include "models/job.h"

namespace plimsoll {

namespace {

/// What a parameter is, by the first op that reads it.
std::map<TensorId, std::string_view> parameter_kinds(const Graph& graph) {
  std::map<TensorId, std::string_view> kinds;
  for (const Op& op : graph.ops) {
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      const Tensor& tensor = graph.at(op.inputs[i]);
      if (tensor.role != TensorRole::parameter) continue;
      std::string_view kind = "weight";
      if (op.kind == OpKind::embedding || op.kind == OpKind::position_add ||
          op.kind == OpKind::token_type_add) {
        kind = "embedding";
      }
      if (op.kind == OpKind::layer_norm || op.kind == OpKind::rms_norm) kind = "norm";
      if ((op.kind == OpKind::linear && i == 2) || op.kind == OpKind::bias_add) kind = "bias";
      kinds.try_emplace(tensor.tied_to.value_or(op.inputs[i]), kind);
    }
  }
  return kinds;
}

void apply(const ParameterGroup& group, Tensor& parameter) {
  if (group.weight_decay) parameter.weight_decay = group.weight_decay;
  if (group.clip) parameter.clip = *group.clip;
  if (group.learning_rate_factor) parameter.rate = *group.learning_rate_factor;
}

}  // namespace

void apply_parameter_groups(Graph& graph, const Job& job) {
  const std::map<TensorId, std::string_view> kinds = parameter_kinds(graph);
  for (const ParameterGroup& group : job.optimizer.groups) {
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      Tensor& tensor = graph.tensors[i];
      if (tensor.role != TensorRole::parameter || !tensor.block) continue;
      const auto kind = kinds.find(tensor.tied_to.value_or(TensorId(i)));
      const bool matches = tensor.name == group.match ||
                           graph.at(*tensor.block).name == group.match ||
                           (kind != kinds.end() && kind->second == group.match);
      if (matches) apply(group, tensor);
    }
  }
}

std::optional<std::string> unmatched_group(const Graph& graph, const ParameterGroup& group) {
  std::string known = "weight, bias, norm, embedding";
  for (const std::string_view kind : {"weight", "bias", "norm", "embedding"}) {
    if (group.match == kind) return std::nullopt;
  }
  for (const Block& block : graph.blocks) {
    if (group.match == block.name) return std::nullopt;
    known += ", " + block.name;
  }
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.role != TensorRole::parameter || tensor.tied_to) continue;
    if (group.match == tensor.name) return std::nullopt;
    known += ", " + tensor.name;
  }
  return known;
}

}  // namespace plimsoll
