// Lists the blocks of each stage in the form that bounds use.
#include "planner/bounds/stage_chunks.h"

#include <algorithm>

namespace plimsoll {
namespace {

void add_run(Chunk& chunk, std::size_t block, std::int64_t count) {
  if (!chunk.empty() && chunk.back().block == block) {
    chunk.back().count += count;
  } else if (count > 0) {
    chunk.push_back({block, count});
  }
}

Chunk chunk_of(const Strategy& strategy, const MicroBatchFacts& facts,
               std::span<const BlockShape> shapes, const ModelPart& part) {
  const std::vector<BlockRange>& ranges = part.blocks;
  Chunk chunk;
  if (layers_alternate(shapes)) {
    for (const BlockInstance& one : instances_of(part, shapes)) {
      const std::optional<std::size_t> variant = facts.blocks[one.block].recomputing;
      const bool again = variant && recomputes(strategy, one.number - part.first, one.number);
      add_run(chunk, again ? *variant : one.block, 1);
    }
    return chunk;
  }
  for (std::size_t b = 0; b < ranges.size(); ++b) {
    const std::optional<std::size_t> variant = facts.blocks[b].recomputing;
    if (!variant) {
      add_run(chunk, b, ranges[b].count);
      continue;
    }
    for (std::int64_t i = 0; i < ranges[b].count; ++i) {
      const std::int64_t layer = ranges[b].number + i;
      add_run(chunk, recomputes(strategy, layer - part.first, layer) ? *variant : b, 1);
    }
  }
  return chunk;
}

}  // namespace

std::vector<StageChunks> stage_chunks(const Job& job, const Strategy& strategy,
                                      const MicroBatchFacts& facts) {
  std::vector<BlockShape> shapes;
  for (const BlockFacts& block : facts.blocks) shapes.push_back(block.shape);
  const StageLayout layout = stage_layout(job, strategy, std::move(shapes));
  std::vector<StageChunks> stages(layout.stages.size());
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    for (const std::size_t part : layout.stages[stage])
      stages[stage].push_back(chunk_of(strategy, facts, layout.blocks, layout.parts[part]));
  }
  return stages;
}

std::vector<StageKind> stage_kinds(std::vector<StageChunks> stages) {
  std::vector<StageKind> kinds;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const auto known = std::find_if(kinds.begin(), kinds.end(), [&](const StageKind& kind) {
      return kind.chunks == stages[stage];
    });
    if (known != kinds.end()) {
      known->last = std::int64_t(stage);
    } else {
      kinds.push_back({std::int64_t(stage), std::int64_t(stage), std::move(stages[stage])});
    }
  }
  return kinds;
}

}  // namespace plimsoll
