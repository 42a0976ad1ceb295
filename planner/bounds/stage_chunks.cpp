// Lists the blocks of each stage in the form that bounds use.
#include "planner/bounds/stage_chunks.h"

#include <algorithm>
#include <numeric>

#include "passes/strategy/pipeline_order.h"

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
               std::span<const BlockShape> shapes, std::span<const std::int64_t> layers,
               std::int64_t part) {
  const std::vector<BlockRange> ranges = blocks_of_part(shapes, layers, part);
  const std::int64_t first =
      std::accumulate(layers.begin(), layers.begin() + part, std::int64_t{0});
  Chunk chunk;
  if (layers_alternate(shapes)) {
    for (const BlockInstance& one : instances_of_part(shapes, layers, part)) {
      const std::optional<std::size_t> variant = facts.blocks[one.block].recomputing;
      const bool again = variant && recomputes(strategy, one.number - first, one.number);
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
      add_run(chunk, recomputes(strategy, layer - first, layer) ? *variant : b, 1);
    }
  }
  return chunk;
}

}  // namespace

std::vector<StageChunks> stage_chunks(const Job& job, const Strategy& strategy,
                                      const MicroBatchFacts& facts) {
  const std::vector<std::int64_t> layers = layers_per_part(job, strategy);
  std::vector<BlockShape> shapes;
  for (const BlockFacts& block : facts.blocks) shapes.push_back(block.shape);
  std::vector<StageChunks> stages(std::size_t(strategy.pp));
  for (std::size_t part = 0; part < layers.size(); ++part) {
    const PartPlace place = place_of(strategy.schedule, strategy.pp, std::int64_t(part));
    stages[std::size_t(place.stage)].push_back(
        chunk_of(strategy, facts, shapes, layers, std::int64_t(part)));
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
