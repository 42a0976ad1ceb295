// Graph: ops and tensors of one training step of one pipeline-free rank, device-free.
//
// A repeated block is written once with its count: embedding x 1, layer x L, head x 1 (with a task
// branch: embedding, layer x L, join, layer x M, head) are executed as a chain, each instance's
// `input` bound to the previous instance's `output` (and, backward, each `output_gradient` to the
// next instance's `input_gradient`). So a graph has the same size for any number of layers. Ops
// without a block belong to the step (the optimizer).
#pragma once

#include <string>
#include <vector>

#include "graph/op.h"
#include "graph/tensor.h"

namespace plimsoll {

/// Layers of all blocks of that kind are numbered through; a join goes where the layer after it
/// goes.
enum class BlockKind : std::uint8_t { embedding, layer, join, head };

struct Block {
  std::string name;
  BlockKind kind = BlockKind::layer;
  std::int64_t count = 1;
  std::optional<TensorId> input, output;                    ///< activations at its borders
  std::optional<TensorId> input_gradient, output_gradient;  ///< set by the backward pass
  /// Runs in place of that block in some of its layers, with its parameters. Variants come last.
  std::optional<BlockId> variant_of = std::nullopt;
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

/// Parameters over all layers, unpadded and with tied ones counted once.
std::int64_t parameter_count(const Graph& graph);

/// Drops tensors that no op, border or parameter link names, and renumbers the rest in order.
/// Parameters, scalars and arenas stay.
void remove_unused_tensors(Graph& graph);
/// Whether an op of a block runs before its first micro-batch only: it makes copies of parameters
/// that last for a step (role workspace).
bool runs_once_per_step(const Graph& graph, const Op& op);
/// Whether a value is a parameter, or a cast of one.
bool is_parameter_value(const Graph& graph, TensorId id);

std::string_view to_text(BlockKind kind);
std::optional<BlockKind> block_kind_from(std::string_view text);

}  // namespace plimsoll
