// A stage layout is which layers and blocks of a model each part of the pipeline has, and which
// chunk of which stage each part is.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// A BlockShape has the facts of a block by which it is placed.
struct BlockShape {
  BlockKind kind = BlockKind::layer;
  std::int64_t count = 1;
  /// whether it replaces another block in some layers and has no instances of its own
  bool variant = false;
  std::vector<std::int64_t> layers = {};  ///< as in Block
  bool operator==(const BlockShape&) const = default;
};
std::vector<BlockShape> block_shapes(const Graph& graph);
std::vector<BlockShape> block_shapes(const Job& job);

/// Returns whether the blocks' layers lie between each other's.
bool layers_alternate(std::span<const BlockShape> blocks);

/// A BlockRange has instances [first, first + count) of one block. For layers that do not
/// alternate, `number` is the index of the first one among the layers of all blocks.
struct BlockRange {
  std::int64_t first = 0, count = 0, number = 0;
  bool operator==(const BlockRange&) const = default;
};

/// A ModelPart has layers [first, first + layers) of the model, with the other blocks that go with
/// them.
struct ModelPart {
  std::int64_t first = 0, layers = 0;
  std::int64_t stage = 0, chunk = 0;  ///< its place, set in a StageLayout
  std::vector<BlockRange> blocks;     ///< by block
};
/// Deals out the layers of all blocks in order, `layers` to each part. The embedding is on the
/// first part, the head on the last, and a join with the first layer after it. A variant of a block
/// has no instances; the code that places instances chooses between a block and its variant.
std::vector<ModelPart> parts_of_model(std::span<const BlockShape> blocks,
                                      std::span<const std::int64_t> layers);

/// A BlockInstance is one instance of a block. `number` names the instance's parameters: the index
/// of a layer among all layers of the model, MTP modules last, and 0 for other blocks.
struct BlockInstance {
  std::size_t block = 0;
  std::int64_t number = 0;
};
/// Returns the instances on one part in the order of the model.
std::vector<BlockInstance> instances_of(const ModelPart& part, std::span<const BlockShape> blocks);

/// A StageLayout is the model as a strategy spreads it over the stages of the pipeline.
struct StageLayout {
  std::vector<BlockShape> blocks;
  std::vector<ModelPart> parts;  ///< from the front of the model
  /// By stage and chunk: the part.
  std::vector<std::vector<std::size_t>> stages;
  std::int64_t tied_stage = 0;  ///< stage_of_tied_table
};
/// Returns the layout of a legal strategy. `blocks` are those of the job's graph.
StageLayout stage_layout(const Job& job, const Strategy& strategy, std::vector<BlockShape> blocks);

/// Returns, by stage and block, how many instances the stage's parts have together.
std::vector<std::vector<std::int64_t>> instances_per_stage(const StageLayout& layout);
/// Returns, by stage, numbers that are equal where stages have the same blocks in the same order.
std::vector<std::vector<std::int64_t>> contents_per_stage(const StageLayout& layout);

/// Returns the parts of the model that have MTP modules.
std::vector<std::int64_t> parts_of_modules(const Job& job,
                                           std::span<const std::int64_t> layers_per_part);
/// Returns the stage that reads the embedding's table, too: that of the MTP modules, which legal
/// strategies do not part, or that of the head.
std::int64_t stage_of_tied_table(const Job& job, const Strategy& strategy);

/// Returns the layers of each part that a layout in Megatron-Core's words states:
/// Et*3|t*4|(t|)*2L. E is the embedding, t a layer, m an MTP module, which counts as a layer here,
/// L the loss, and | ends a part; `*3` repeats what stands before it, a letter or a (...); commas
/// mean nothing. Throws std::invalid_argument saying what is required.
std::vector<std::int64_t> layers_of_layout(std::string_view text);

}  // namespace plimsoll
