// Layers are dealt out to the parts of a pipeline.
#include "passes/strategy/stage_blocks.h"

#include <algorithm>
#include <numeric>

#include "passes/strategy/pipeline_order.h"

namespace plimsoll {

std::vector<std::int64_t> layers_per_part(const Job& job, const Strategy& strategy) {
  if (!strategy.layer_split.empty()) return strategy.layer_split;
  const std::int64_t parts = strategy.pp * strategy.virtual_stages;
  const std::int64_t total =
      total_layers(job) + strategy.embedding_as_layers + strategy.loss_as_layers;
  INVARIANT(parts >= 1 && parts <= total, "a legal strategy has a layer for every part");
  std::vector<std::int64_t> layers(static_cast<std::size_t>(parts), total / parts);
  for (std::int64_t i = 0; i < total % parts; ++i) ++layers[static_cast<std::size_t>(i)];
  layers.front() -= strategy.embedding_as_layers;
  layers.back() -= strategy.loss_as_layers;
  return layers;
}

std::vector<std::int64_t> layers_per_stage(const Job& job, const Strategy& strategy) {
  const std::vector<std::int64_t> parts = layers_per_part(job, strategy);
  std::vector<std::int64_t> layers(static_cast<std::size_t>(strategy.pp));
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const PartPlace place = place_of(strategy.schedule, strategy.pp, std::int64_t(part));
    layers[std::size_t(place.stage)] += parts[part];
  }
  return layers;
}

std::vector<BlockShape> block_shapes(const Graph& graph) {
  std::vector<BlockShape> shapes;
  for (const Block& block : graph.blocks)
    shapes.push_back({block.kind, block.count, block.variant_of.has_value()});
  return shapes;
}

std::vector<BlockShape> block_shapes(const Job& job) { return block_shapes(build_forward(job, 1)); }

std::vector<BlockRange> blocks_of_part(std::span<const BlockShape> blocks,
                                       std::span<const std::int64_t> layers_per_part,
                                       std::int64_t part) {
  const auto before = layers_per_part.begin() + part;
  const std::int64_t first = std::accumulate(layers_per_part.begin(), before, std::int64_t{0});
  const std::int64_t last = first + *before;
  std::vector<BlockRange> ranges;
  std::int64_t numbered = 0;  // layers of the blocks so far
  for (const BlockShape& block : blocks) {
    BlockRange range;
    if (block.variant) {
      ranges.push_back(range);
      continue;
    }
    switch (block.kind) {
      case BlockKind::embedding:
        range.count = part == 0;
        break;
      case BlockKind::layer:
        range.first = std::clamp<std::int64_t>(first - numbered, 0, block.count);
        range.count = std::clamp<std::int64_t>(last - numbered, 0, block.count) - range.first;
        range.number = numbered + range.first;
        numbered += block.count;
        break;
      case BlockKind::join:
        range.count = first <= numbered && numbered < last;
        break;
      case BlockKind::head:
        range.count = part + 1 == std::int64_t(layers_per_part.size());
        break;
    }
    ranges.push_back(range);
  }
  return ranges;
}

std::vector<std::vector<std::int64_t>> instances_per_stage(const Job& job,
                                                           const Strategy& strategy) {
  const std::vector<BlockShape> blocks = block_shapes(job);
  const std::vector<std::int64_t> layers = layers_per_part(job, strategy);
  std::vector<std::vector<std::int64_t>> stages(std::size_t(strategy.pp),
                                                std::vector<std::int64_t>(blocks.size()));
  for (std::size_t part = 0; part < layers.size(); ++part) {
    const auto ranges = blocks_of_part(blocks, layers, std::int64_t(part));
    const auto stage =
        std::size_t(place_of(strategy.schedule, strategy.pp, std::int64_t(part)).stage);
    for (std::size_t b = 0; b < blocks.size(); ++b) stages[stage][b] += ranges[b].count;
  }
  return stages;
}

}  // namespace plimsoll
