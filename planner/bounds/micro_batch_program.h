// Micro-batch program: every routine of a model's blocks, called once. What a micro-batch takes is
// read off it, however the blocks are spread over stages.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.h"
#include "graph/program.h"
#include "passes/cut/cut_blocks.h"
#include "passes/strategy/stage_blocks.h"

namespace plimsoll {

struct MicroBatchProgram {
  /// Calls 3b, 3b + 1 and 3b + 2 are forward, backward and weight gradients of block b. Tensors
  /// have no names.
  Program program;
  std::vector<BlockShape> shapes;                      ///< by block
  std::vector<std::optional<std::size_t>> variant_of;  ///< by block
};

MicroBatchProgram micro_batch_program(const Graph& graph, const CutGraph& cut, const Grid& grid);

/// The program of a micro-batch of so many sequences, from those of one and of two: every size of a
/// tensor grows by as much with each sequence, or not at all. So ops take what they take in the
/// program that a lowering makes. Bytes of slots and frames are at most as many as there, since
/// layouts round. Nothing where the two programs differ in more than sizes.
std::optional<MicroBatchProgram> extended(const MicroBatchProgram& one,
                                          const MicroBatchProgram& two, std::int64_t sequences);

}  // namespace plimsoll
