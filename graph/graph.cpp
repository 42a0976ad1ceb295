#include "graph/graph.h"

#include "base/error.h"
#include "graph/names.h"

namespace plimsoll {

namespace {
constexpr std::array<std::string_view, 3> kBlockKinds = {"embedding", "layer", "head"};
}  // namespace

std::int64_t parameter_count(const Graph& graph) {
  std::int64_t count = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.role != TensorRole::parameter || tensor.tied_to || tensor.arena) continue;
    INVARIANT(!tensor.split, "parameters are counted before they are split");
    count += elements(tensor.shape) * graph.at(*tensor.block).count;
  }
  return count;
}

std::string_view to_text(BlockKind kind) { return kBlockKinds[std::size_t(kind)]; }
std::optional<BlockKind> block_kind_from(std::string_view text) {
  return enumerator_from<BlockKind>(kBlockKinds, text);
}

}  // namespace plimsoll
