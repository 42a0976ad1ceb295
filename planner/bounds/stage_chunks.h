// Stage chunks: lists the blocks that each stage runs, chunk by chunk, and finds stages that are
// alike.
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
/// Blocks in chain order. A layer that recomputes is the variant that does.
using Chunk = std::vector<BlockRun>;
/// Chunks of a stage, in the order of the model.
using StageChunks = std::vector<Chunk>;

/// Returns the chunks of each stage.
std::vector<StageChunks> stage_chunks(const Job& job, const Strategy& strategy,
                                      const MicroBatchFacts& facts);

/// Stages with the same chunks.
struct StageKind {
  std::int64_t first = 0, last = 0;  ///< stages of this kind
  StageChunks chunks;
};
std::vector<StageKind> stage_kinds(std::vector<StageChunks> stages);

}  // namespace plimsoll
