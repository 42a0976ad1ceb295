// Parameters are grouped by weight decay, learning rate and clipping.
#include "passes/graph/attribute_groups.h"

#include <algorithm>

#include "passes/graph/step_ops.h"

namespace plimsoll {

AttributeGroup attributes_of(const Tensor& parameter, const Optimizer& optimizer) {
  return {weight_decay(parameter, optimizer), parameter.rate, parameter.clip};
}

std::vector<AttributeGroup> attribute_groups(const Graph& graph, const Optimizer& optimizer) {
  std::vector<AttributeGroup> groups;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.role != TensorRole::parameter || tensor.arena || tensor.tied_to) continue;
    const AttributeGroup group = attributes_of(tensor, optimizer);
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  return groups;
}

std::int64_t attribute_group(const std::vector<AttributeGroup>& groups, const Tensor& parameter,
                             const Optimizer& optimizer) {
  const auto found = std::find(groups.begin(), groups.end(), attributes_of(parameter, optimizer));
  return found - groups.begin();
}

}  // namespace plimsoll
