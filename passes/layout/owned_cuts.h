// Routines of blocks as a rank runs them that owns some of the tensors: where broadcasts are ops of
// a block (gather = use), their roots differ between instances, and what owner and others do
// differs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "passes/cut/cut_blocks.h"
#include "passes/layout/arena_layout.h"
#include "passes/strategy/pass_context.h"

namespace plimsoll {

/// The cut of each instance of a stage: its block's, or, where the Graph's blocks have broadcasts,
/// one for each block and owners of its tensors. The owner broadcasts in place and its ops read the
/// parameter itself; others receive into a temporary of the frame and cast nothing that they do not
/// own.
class OwnedCuts {
 public:
  OwnedCuts(const Graph& graph, const CutGraph& cut, const PassContext& context,
            const ArenaLayout& layout, std::int64_t alignment, std::optional<std::int64_t> owner);

  const CutBlock& of(std::size_t instance) const { return *of_[instance]; }

 private:
  /// By block and the owners of its tensors.
  std::map<std::pair<BlockId, std::vector<std::int64_t>>, CutBlock> cuts_;
  std::vector<const CutBlock*> of_;  ///< by instance
};

}  // namespace plimsoll
