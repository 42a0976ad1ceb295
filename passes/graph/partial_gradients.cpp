// Collectives are added for gradients of which mp ranks computed parts.
#include <algorithm>

#include "base/error.h"
#include "passes/graph/passes.h"
#include "passes/graph/rewrite.h"
#include "passes/graph/step_ops.h"

namespace plimsoll {

bool partial_gradients(Graph& graph, const PassContext& context) {
  std::vector<Group> groups;
  for (const Tensor& tensor : graph.tensors) {
    const auto& group = tensor.gradient_group;
    // Shards of experts are summed as they are scattered.
    const bool scattered = context.strategy.sharding_stage > 0;
    if (group && scattered && group->axes.has(Axis::edp)) continue;
    if (group && std::find(groups.begin(), groups.end(), *group) == groups.end()) {
      groups.push_back(*group);
    }
  }
  if (groups.empty()) return false;
  const auto gradients = gradient_arena(graph);
  INVARIANT(gradients, "parts of gradients are summed in an arena");
  std::vector<Op> sums;
  for (const Group& group : groups) {
    sums.push_back(op_of(Phase::optimizer, {}, OpKind::all_reduce, {*gradients}, {*gradients},
                         CollectiveParams{group, Reduction::sum}, Stream::mp));
  }
  // Once they are zeroed, before anything else of the update.
  const auto later = std::find_if(graph.ops.begin(), graph.ops.end(), [](const Op& op) {
    return op.phase == Phase::optimizer && op.kind != OpKind::begin_step && op.kind != OpKind::fill;
  });
  graph.ops.insert(later, sums.begin(), sums.end());
  return true;
}

}  // namespace plimsoll
