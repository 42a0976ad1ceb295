// Layers are dealt out to the parts of a pipeline.
#include "passes/strategy/stage_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <stdexcept>

#include "base/error.h"
#include "base/json.h"
#include "passes/strategy/pipeline_order.h"

namespace plimsoll {
namespace {

/// The most layers that a layout may name, as many as a job may have
/// (models/presets/schemas/job.json).
constexpr std::int64_t kMostLayersOfLayout = 100'000;
constexpr int kMostDepth = 64;  // of brackets in a layout

/// Writes out "(...)*3" and "t*3" of a layout (Megatron-LM
/// core/transformer/pipeline_parallel_layer_layout.py).
std::string written_out(std::string_view& text, int depth) {
  if (depth > kMostDepth) throw std::invalid_argument("a layout with fewer ( is required");
  std::string out;
  while (!text.empty() && (text.front() != ')' || depth == 0)) {
    const char c = text.front();
    text.remove_prefix(1);
    std::string piece(1, c);
    if (c == '(') {
      piece = written_out(text, depth + 1);
      if (text.empty()) throw std::invalid_argument("a layout with a ) for each ( is required");
      text.remove_prefix(1);
    } else if (std::string_view("EtmL|,").find(c) == std::string_view::npos) {
      throw std::invalid_argument(
          fmt::format("found {}; a layout of E, t, m, L and | is required", printable({&c, 1})));
    }
    if (!text.empty() && text.front() == '*') {
      text.remove_prefix(1);
      std::int64_t times = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), times);
      if (error != std::errc() || times < 1 || times > kMostLayersOfLayout ||
          std::int64_t(piece.size()) * times > 4 * kMostLayersOfLayout)
        throw std::invalid_argument("a layout with a count behind each * is required");
      text.remove_prefix(std::size_t(end - text.data()));
      std::string repeated;
      for (std::int64_t i = 0; i < times; ++i) repeated += piece;
      piece = std::move(repeated);
    }
    out += piece;
    if (std::int64_t(out.size()) > 4 * kMostLayersOfLayout)
      throw std::invalid_argument("a shorter layout is required");
  }
  return out;
}

/// Returns, by block, the instances on a part of the model.
std::vector<BlockRange> blocks_of_part(std::span<const BlockShape> blocks, const ModelPart& part,
                                       bool is_first, bool is_last) {
  const std::int64_t first = part.first, last = part.first + part.layers;
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
        range.count = is_first;
        break;
      case BlockKind::layer:
        if (!block.layers.empty()) {
          const auto place = [&](std::int64_t layer) {
            return std::ranges::lower_bound(block.layers, layer) - block.layers.begin();
          };
          range.first = place(first);
          range.count = place(last) - range.first;
          numbered = std::max(numbered, block.layers.back() + 1);
          break;
        }
        range.first = std::clamp<std::int64_t>(first - numbered, 0, block.count);
        range.count = std::clamp<std::int64_t>(last - numbered, 0, block.count) - range.first;
        range.number = numbered + range.first;
        numbered += block.count;
        break;
      case BlockKind::join:
        range.count = first <= numbered && numbered < last;
        break;
      case BlockKind::head:
        range.count = is_last;
        break;
    }
    ranges.push_back(range);
  }
  return ranges;
}

}  // namespace

std::vector<std::int64_t> layers_of_layout(std::string_view text) {
  const std::string layout = written_out(text, 0);
  std::vector<std::int64_t> layers(1, 0);
  std::string ends;
  for (const char c : layout) {
    if (c == '|') layers.push_back(0);
    if (c == 't' || c == 'm') ++layers.back();
    if (c == 'E' || c == 'L') ends += c;
  }
  const std::string_view whole = layout;
  if (ends != "EL" || whole.find('E') > whole.find_first_of("tm") ||
      whole.rfind('L') < whole.find_last_of("tm")) {
    throw std::invalid_argument("a layout that begins with E and ends with L is required");
  }
  if (whole.find('m') < whole.rfind('t') && whole.find('t') != whole.npos)
    throw std::invalid_argument("a layout with MTP modules m behind all layers t is required");
  return layers;
}

std::vector<std::int64_t> layers_per_part(const Job& job, const Strategy& strategy) {
  if (!strategy.pipeline.layer_split.empty()) return strategy.pipeline.layer_split;
  const std::int64_t parts = strategy.pp * strategy.pipeline.virtual_stages;
  const std::int64_t total =
      dealt_layers(job) + strategy.pipeline.embedding_as_layers + strategy.pipeline.loss_as_layers;
  INVARIANT(parts >= 1 && parts <= total, "a legal strategy has a layer for every part");
  std::vector<std::int64_t> layers(static_cast<std::size_t>(parts), total / parts);
  for (std::int64_t i = 0; i < total % parts; ++i) ++layers[static_cast<std::size_t>(i)];
  layers.front() -= strategy.pipeline.embedding_as_layers;
  layers.back() += total_layers(job) - dealt_layers(job) - strategy.pipeline.loss_as_layers;
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

std::vector<std::int64_t> parts_of_modules(const Job& job,
                                           std::span<const std::int64_t> layers_per_part) {
  std::vector<std::int64_t> parts;
  std::int64_t left = total_layers(job) - dealt_layers(job);
  for (std::size_t part = layers_per_part.size(); left > 0 && part-- > 0;) {
    if (layers_per_part[part] > 0) parts.push_back(std::int64_t(part));
    left -= layers_per_part[part];
  }
  return parts;
}

std::int64_t stage_of_tied_table(const Job& job, const Strategy& strategy) {
  if (!job.mtp) return stage_of_head(strategy);
  const std::int64_t part = parts_of_modules(job, layers_per_part(job, strategy)).front();
  return place_of(strategy.schedule, strategy.pp, part).stage;
}

std::vector<BlockShape> block_shapes(const Graph& graph) {
  std::vector<BlockShape> shapes;
  for (const Block& block : graph.blocks)
    shapes.push_back({block.kind, block.count, block.variant_of.has_value(), block.layers});
  return shapes;
}

std::vector<BlockShape> block_shapes(const Job& job) { return block_shapes(build_forward(job, 1)); }

std::vector<ModelPart> parts_of_model(std::span<const BlockShape> blocks,
                                      std::span<const std::int64_t> layers) {
  std::vector<ModelPart> parts;
  for (std::int64_t first = 0; const std::int64_t count : layers) {
    ModelPart& part = parts.emplace_back();
    part.first = first;
    part.layers = count;
    part.blocks = blocks_of_part(blocks, part, parts.size() == 1, parts.size() == layers.size());
    first += count;
  }
  return parts;
}

bool layers_alternate(std::span<const BlockShape> blocks) {
  return std::ranges::any_of(blocks, [](const BlockShape& block) { return !block.layers.empty(); });
}

std::vector<BlockInstance> instances_of(const ModelPart& part, std::span<const BlockShape> blocks) {
  const std::vector<BlockRange>& ranges = part.blocks;
  std::vector<BlockInstance> instances;
  std::optional<std::size_t> alternating;  // where the first of these layers is
  for (std::size_t b = 0; b < ranges.size(); ++b) {
    const BlockShape& block = blocks[b];
    if (!block.layers.empty() && !alternating) alternating = instances.size();
    for (std::int64_t i = ranges[b].first; i < ranges[b].first + ranges[b].count; ++i) {
      const std::int64_t layer = block.layers.empty() ? ranges[b].number + i - ranges[b].first
                                                      : block.layers[std::size_t(i)];
      instances.push_back({b, layer});
    }
    const bool more = b + 1 < ranges.size() && !blocks[b + 1].layers.empty();
    if (!alternating || more) continue;
    std::sort(instances.begin() + std::ptrdiff_t(*alternating), instances.end(),
              [](const BlockInstance& one, const BlockInstance& other) {
                return one.number < other.number;
              });
    alternating.reset();
  }
  return instances;
}

StageLayout stage_layout(const Job& job, const Strategy& strategy, std::vector<BlockShape> blocks) {
  StageLayout layout;
  layout.blocks = std::move(blocks);
  layout.parts = parts_of_model(layout.blocks, layers_per_part(job, strategy));
  layout.stages.resize(std::size_t(strategy.pp));
  for (std::size_t part = 0; part < layout.parts.size(); ++part) {
    const PartPlace place = place_of(strategy.schedule, strategy.pp, std::int64_t(part));
    layout.parts[part].stage = place.stage;
    layout.parts[part].chunk = place.chunk;
    layout.stages[std::size_t(place.stage)].push_back(part);
  }
  layout.tied_stage = stage_of_tied_table(job, strategy);
  return layout;
}

std::vector<std::vector<std::int64_t>> instances_per_stage(const StageLayout& layout) {
  std::vector<std::vector<std::int64_t>> stages;
  for (const std::vector<std::size_t>& parts : layout.stages) {
    std::vector<std::int64_t>& counts = stages.emplace_back(layout.blocks.size());
    for (const std::size_t part : parts) {
      for (std::size_t b = 0; b < counts.size(); ++b)
        counts[b] += layout.parts[part].blocks[b].count;
    }
  }
  return stages;
}

std::vector<std::vector<std::int64_t>> contents_per_stage(const StageLayout& layout) {
  auto stages = instances_per_stage(layout);
  if (!layers_alternate(layout.blocks)) return stages;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    for (const std::size_t part : layout.stages[stage]) {
      for (const BlockInstance& one : instances_of(layout.parts[part], layout.blocks))
        stages[stage].push_back(std::int64_t(one.block));
    }
  }
  return stages;
}

}  // namespace plimsoll
