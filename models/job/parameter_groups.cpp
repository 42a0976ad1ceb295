// Which parameters the groups of an optimizer match, and what they change.

#include <map>

#include "graph/op_table.h"
#include "models/job/job.h"

namespace plimsoll {

namespace {

/// The kind of each parameter, by the first op that reads it.
std::map<TensorId, std::string_view> parameter_kinds(const Graph& graph) {
  std::map<TensorId, std::string_view> kinds;
  for (const Op& op : graph.ops) {
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      const Tensor& tensor = graph.at(op.inputs[i]);
      if (!is_one_parameter(tensor)) continue;
      std::string_view kind = "weight";
      if (op.kind == OpKind::embedding || op.kind == OpKind::position_add ||
          op.kind == OpKind::token_type_add) {
        kind = "embedding";
      }
      if (op.kind == OpKind::layer_norm || op.kind == OpKind::rms_norm) kind = "norm";
      if (input_operand(op, i).name == "bias") kind = "bias";
      kinds.try_emplace(tensor.tied_to.value_or(op.inputs[i]), kind);
    }
  }
  return kinds;
}

using Kinds = std::map<TensorId, std::string_view>;

/// Whether a match names a block. Layers of several kinds are also named together.
bool is_named(const Block& block, std::string_view match) {
  return block.name == match || (!block.layers.empty() && match == "layer");
}

bool is_matched(const Graph& graph, const Kinds& kinds, TensorId id, std::string_view match) {
  const Tensor& tensor = graph.at(id);
  if (!is_one_parameter(tensor) || !tensor.block) return false;
  const auto kind = kinds.find(tensor.tied_to.value_or(id));
  return tensor.name == match || is_named(graph.at(*tensor.block), match) ||
         (kind != kinds.end() && kind->second == match);
}

void apply(const ParameterGroup& group, Tensor& parameter) {
  if (group.weight_decay) parameter.weight_decay = group.weight_decay;
  if (group.clip) parameter.clip = *group.clip;
  if (group.learning_rate_factor) parameter.rate = *group.learning_rate_factor;
}

}  // namespace

void apply_parameter_groups(Graph& graph, const Job& job) {
  const Kinds kinds = parameter_kinds(graph);
  for (const ParameterGroup& group : job.optimizer.groups) {
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      if (is_matched(graph, kinds, TensorId(i), group.match)) apply(group, graph.tensors[i]);
    }
  }
}

std::vector<bool> matched_parameters(const Graph& graph, const std::vector<std::string>& matches) {
  const Kinds kinds = parameter_kinds(graph);
  std::vector<bool> matched(graph.tensors.size());
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const TensorId owner = graph.tensors[i].tied_to.value_or(TensorId(i));
    for (const std::string& match : matches) {
      if (is_matched(graph, kinds, owner, match)) matched[i] = true;
    }
  }
  return matched;
}

std::optional<std::string> unmatched_group(const Graph& graph, std::string_view match) {
  std::string known = "weight, bias, norm, embedding";
  for (const std::string_view kind : {"weight", "bias", "norm", "embedding"}) {
    if (match == kind) return std::nullopt;
  }
  for (const Block& block : graph.blocks) {
    if (is_named(block, match)) return std::nullopt;
    known += ", " + block.name;
  }
  for (const Tensor& tensor : graph.tensors) {
    if (!is_one_parameter(tensor) || tensor.tied_to) continue;
    if (match == tensor.name) return std::nullopt;
    known += ", " + tensor.name;
  }
  return known;
}

}  // namespace plimsoll
