// An attribute group is a set of parameters that one flat update can treat alike.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "models/job/job.h"

namespace plimsoll {

struct AttributeGroup {
  double weight_decay = 0, rate = 1;  ///< rate: factor of the learning rate
  bool clip = true;
  bool operator==(const AttributeGroup&) const = default;
};

AttributeGroup attributes_of(const Tensor& parameter, const Optimizer& optimizer);
/// Returns the groups that occur, in order of the parameters.
std::vector<AttributeGroup> attribute_groups(const Graph& graph, const Optimizer& optimizer);
/// Returns the index of a parameter's group.
std::int64_t attribute_group(const std::vector<AttributeGroup>& groups, const Tensor& parameter,
                             const Optimizer& optimizer);

}  // namespace plimsoll
