// Micro-batch program: calls every routine of a model's blocks once. Times and bytes of a
// micro-batch are read off it, however stages share the blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.h"
#include "graph/program.h"
#include "passes/cut/cut_blocks.h"
#include "passes/strategy/stage_layout.h"

namespace plimsoll {

/// The program of one micro-batch.
struct MicroBatchProgram {
  /// Calls 3b, 3b + 1 and 3b + 2 are forward, backward and weight gradients of block b. Tensors
  /// have no names.
  Program program;
  std::vector<BlockShape> shapes;                      ///< by block
  std::vector<std::optional<std::size_t>> variant_of;  ///< by block
};

MicroBatchProgram micro_batch_program(const Graph& graph, const CutGraph& cut, const Grid& grid);

/// Returns the program of a micro-batch of so many sequences, from the programs of one and of two.
/// Every size of a tensor grows by as much with each sequence, or not at all, so that ops have the
/// times of a lowered program. Bytes of slots and frames are at most those of a lowered program,
/// since layouts round. Returns nothing where the two programs differ in more than sizes.
std::optional<MicroBatchProgram> extended(const MicroBatchProgram& one,
                                          const MicroBatchProgram& two, std::int64_t sequences);

}  // namespace plimsoll
