// Which instances of a graph's blocks a part of the pipeline has.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// The facts of a block that placing it needs.
struct BlockShape {
  BlockKind kind = BlockKind::layer;
  std::int64_t count = 1;
  bool variant = false;  ///< stands in for another block, has no instances of its own
  bool operator==(const BlockShape&) const = default;
};
std::vector<BlockShape> block_shapes(const Graph& graph);
std::vector<BlockShape> block_shapes(const Job& job);

/// Instances [first, first + count) of one block; `number` is that of the first one among the
/// layers of all blocks (layers only).
struct BlockRange {
  std::int64_t first = 0, count = 0, number = 0;
  bool operator==(const BlockRange&) const = default;
};

/// By block, the instances on one part: layers of all blocks are numbered through and dealt out in
/// order, `layers_per_part` to each; the embedding is on the first part, the head on the last, a
/// join with the first layer after it. A variant of a block has none: whoever places instances
/// chooses it.
std::vector<BlockRange> blocks_of_part(std::span<const BlockShape> blocks,
                                       std::span<const std::int64_t> layers_per_part,
                                       std::int64_t part);

/// By stage and block: how many instances the stage's parts have together.
std::vector<std::vector<std::int64_t>> instances_per_stage(const Job& job,
                                                           const Strategy& strategy);

}  // namespace plimsoll
