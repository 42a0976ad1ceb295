// Roles of forward values follow from what backward reads.
#include "passes/graph/saved_tensors.h"

#include <vector>

namespace plimsoll {

void mark_saved(Graph& graph) {
  for (Tensor& tensor : graph.tensors) {
    if (tensor.role == TensorRole::saved) tensor.role = TensorRole::activation;
  }
  std::vector<bool> written_forward(graph.tensors.size());
  for (const Op& op : graph.ops) {
    for (TensorId id : op.outputs) {
      if (op.phase == Phase::forward) written_forward[id.index()] = true;
    }
    if (op.phase != Phase::backward) continue;
    for (TensorId id : op.inputs) {
      Tensor& tensor = graph.at(id);
      if (written_forward[id.index()] && tensor.role == TensorRole::activation)
        tensor.role = TensorRole::saved;
    }
  }
}

}  // namespace plimsoll
