// Stage chunks: which blocks each stage runs, chunk by chunk, and which stages are alike.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/bounds/block_facts.h"

namespace plimsoll {

/// Instances of one block in a row.
struct BlockRun {
  std::size_t block = 0;  ///< index into MicroBatchFacts::blocks
  std::int64_t count = 0;
  bool operator==(const BlockRun&) const = default;
};
/// In chain order, layers that recompute as the variant that does.
using Chunk = std::vector<BlockRun>;
/// A stage's, in the order of the model.
using StageChunks = std::vector<Chunk>;

/// By stage.
std::vector<StageChunks> stage_chunks(const Job& job, const Strategy& strategy,
                                      const MicroBatchFacts& facts);

/// A stage by what makes it differ from others.
struct StageKind {
  std::int64_t first = 0, last = 0;  ///< stages
  StageChunks chunks;
};
std::vector<StageKind> stage_kinds(std::vector<StageChunks> stages);

}  // namespace plimsoll
