// OwnedCuts has the routines of blocks for a rank that owns some of the tensors. Where broadcasts
// are ops of a block (gather = use), their roots differ between instances, and owners run other ops
// than the other ranks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "passes/cut/cut_blocks.h"

namespace plimsoll {

/// An OwnedInstance is an instance of a block on a stage, with the owners of the tensors that it
/// reads.
struct OwnedInstance {
  BlockId block;
  std::map<TensorId, std::int64_t> owners;
};

/// It has the cut of each instance of a stage. This is the block's cut or, where the Graph's blocks
/// have broadcasts, one cut for each block and set of owners of its tensors. The owner broadcasts
/// in place, and its ops read the parameter itself. Other ranks receive into a temporary of the
/// frame, and cast nothing that they do not own.
class OwnedCuts {
 public:
  OwnedCuts(const Graph& graph, const CutGraph& cut, const Strategy& strategy,
            const std::vector<OwnedInstance>& instances, std::optional<std::int64_t> owner);

  const CutBlock& cut_of(std::size_t instance) const { return *of_[instance]; }

 private:
  /// The cuts by block and owners of the block's tensors.
  std::map<std::pair<BlockId, std::map<TensorId, std::int64_t>>, CutBlock> cuts_;
  std::vector<const CutBlock*> of_;  ///< by instance
};

}  // namespace plimsoll
