#include <algorithm>

#include "base/error.h"
#include "passes/passes.h"

namespace plimsoll {

bool partial_gradients(Graph& graph, const PassContext&) {
  std::vector<Group> groups;
  for (const Tensor& tensor : graph.tensors) {
    const auto& group = tensor.gradient_group;
    if (group && std::find(groups.begin(), groups.end(), *group) == groups.end()) {
      groups.push_back(*group);
    }
  }
  if (groups.empty()) return false;
  const auto norm = std::find_if(graph.ops.begin(), graph.ops.end(),
                                 [](const Op& op) { return op.kind == OpKind::squared_norm; });
  INVARIANT(norm != graph.ops.end(), "no squared_norm in the graph");
  const TensorId gradients = norm->inputs[0];
  std::vector<Op> sums;
  for (const Group& group : groups) {
    Op& sum = sums.emplace_back();
    sum.kind = OpKind::all_reduce;
    sum.phase = Phase::optimizer;
    sum.stream = Stream::mp;
    sum.inputs = sum.outputs = {gradients};
    sum.params = CollectiveParams{group, Reduction::sum};
  }
  graph.ops.insert(norm, sums.begin(), sums.end());
  return true;
}

}  // namespace plimsoll
