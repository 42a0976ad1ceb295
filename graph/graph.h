// A Graph holds the ops and tensors of one training step of one rank, before pipelines and devices.
//
// A repeated block is written once with its count: embedding x 1, layer x L, head x 1. With a task
// branch the blocks are embedding, layer x L, join, layer x M, head. Layers of several kinds that
// alternate are a block each, which lists the indices of its layers. The instances are executed as
// a chain: each instance's `input` is bound to the previous instance's `output`. In backward each
// `output_gradient` is bound to the next instance's `input_gradient`. So a graph has the same size
// for any number of layers. Ops without a block belong to the step, as the optimizer's do.
#pragma once

#include <string>
#include <vector>

#include "graph/op.h"
#include "graph/tensor.h"

namespace plimsoll {

/// The kind of a block. Layers are numbered through over all blocks of kind `layer`. A join is on
/// the stage of the layer after it.
enum class BlockKind : std::uint8_t { embedding, layer, join, head };

struct Block {
  std::string name;
  BlockKind kind = BlockKind::layer;
  std::int64_t count = 1;
  /// For layers that alternate with those of other blocks: the index of each instance among all
  /// layers, ascending. Empty: the layers follow those of the blocks before.
  std::vector<std::int64_t> layers = {};
  std::optional<TensorId> input, output;                    ///< activations at its borders
  std::optional<TensorId> input_gradient, output_gradient;  ///< set by the backward pass
  /// The block that this one replaces in some of that block's layers, with that block's parameters.
  /// Variants come last among the blocks.
  std::optional<BlockId> variant_of = std::nullopt;
  /// Its tensors have 1/parts of a micro-batch's tokens. Above 1, its backward is called for each
  /// of these parts, and begins with its forward.
  std::int64_t parts = 1;
  bool operator==(const Block&) const = default;
};

struct Graph {
  std::string name;
  Grid grid;                  ///< degrees the passes have split for so far
  std::vector<Block> blocks;  ///< in chain order
  std::vector<Tensor> tensors;
  std::vector<Op> ops;  ///< in a legal execution order within each block, forward before backward
  bool operator==(const Graph&) const = default;

  const Tensor& at(TensorId id) const { return tensors[id.index()]; }
  Tensor& at(TensorId id) { return tensors[id.index()]; }
  const Block& at(BlockId id) const { return blocks[id.index()]; }
  Block& at(BlockId id) { return blocks[id.index()]; }
  TensorId add(Tensor tensor) {
    tensors.push_back(std::move(tensor));
    return TensorId(tensors.size() - 1);
  }
};

/// Returns the number of parameters over all layers, without padding, and with tied ones counted
/// once.
std::int64_t parameter_count(const Graph& graph);
/// Returns how many of them are trained.
std::int64_t trained_parameter_count(const Graph& graph);

/// Drops tensors that no op, border or parameter link names, and renumbers the rest in order.
/// Parameters, scalars and arenas stay.
void remove_unused_tensors(Graph& graph);
/// Returns whether an op of a block runs before its first micro-batch only. Such an op makes copies
/// of parameters that last for a step (role workspace).
bool runs_once_per_step(const Graph& graph, const Op& op);
/// Returns whether a value is a parameter, or a cast of one.
bool is_parameter_value(const Graph& graph, TensorId id);

std::string_view to_text(BlockKind kind);

}  // namespace plimsoll
