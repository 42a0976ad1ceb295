// Cuts a Graph into routines: each block's forward and backward (in two where the schedule delays
// weight gradients), with every tensor placed in a slot
// or in the frame, and the layout of each block's parameter bundle.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/program.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// One parameter within its block's bundle, the same range in the parameter and gradient arenas.
struct BundleEntry {
  TensorId parameter;
  std::int64_t offset = 0, elements = 0;  ///< elements; offsets are multiples of the alignment
};

/// Elements that parameters are padded to, so that any run of them splits into shards that start on
/// a block boundary, in the smallest type that has an arena.
std::int64_t arena_alignment(const Job& job, const Strategy& strategy);
/// Elements rounded up to a multiple of the alignment.
std::int64_t padded(std::int64_t elements, std::int64_t alignment);

/// How a block's backward becomes routines.
enum class BackwardCut : std::uint8_t {
  whole,
  split,  ///< passes/cut/split_backward.h: the gradient of its input, and those of its parameters
};

struct CutBlock {
  Routine forward;
  Routine backward;         ///< split: the gradient of its input; may have no ops
  Routine weight_gradient;  ///< split: the rest; else without ops
  Routine weight_copies;    ///< before the first forward of a step; may have no ops
  /// Reverse creation order, which is the order of backward; parameters that stay whole in sharding
  /// stage 3 last; of either kind, those with a gradient_group last.
  std::vector<BundleEntry> bundle;
  std::int64_t bundle_elements = 0;    ///< a multiple of the alignment
  std::int64_t gathered_elements = 0;  ///< without those that stay whole
};

/// The part of the update that works on one parameter of every instance of its block.
struct ParameterRoutine {
  TensorId parameter;
  Routine routine;
};

/// A run of once-per-step ops that all have a block, or all have none.
struct UpdatePart {
  Routine routine;                     ///< ops without a block: on arenas, of the Graph's sizes
  std::vector<ParameterRoutine> each;  ///< ops with blocks
};

struct CutGraph {
  std::vector<CutBlock> blocks;    ///< parallel to graph.blocks
  Routine begin_step;              ///< zeroes gradients; arenas have the Graph's sizes
  std::vector<UpdatePart> update;  ///< norm, clip, update
};

/// `alignment`: every parameter starts at, and is padded to, a multiple of this many elements, so
/// that any run of parameters splits evenly into aligned shards. Parameters of up to `resident`
/// elements get a slot of their own, resident_parameters: in sharding stage 3 they stay whole.
/// `scattered`: the parameters of a block do not lie together, so each has a slot of its own, and
/// its gradient too. They also do not where their types differ.
CutGraph cut_blocks(const Graph& graph, std::int64_t alignment,
                    BackwardCut backward = BackwardCut::whole, std::int64_t resident = 0,
                    bool scattered = false);
/// One block of it. `rewrite` changes the ops of a routine before they are cut; saved tensors that
/// no op then names are left out.
CutBlock cut_block(const Graph& graph, BlockId block, std::int64_t alignment, BackwardCut backward,
                   std::int64_t resident, bool scattered,
                   const std::function<std::vector<Op>(std::vector<Op>)>& rewrite = {});
/// The kind of backward that a strategy's schedule needs.
BackwardCut backward_cut(const Strategy& strategy);
/// Whether parameters, or what micro-batches write of their gradients, are of several types: those
/// of one type then lie together.
bool mixes_types(const Graph& graph);
/// Whether a strategy scatters them: owned tensors lie in the order of their owners, which is that
/// of the model only if owners were given out in it; from stage 2 on what a rank owns of a block
/// lies elsewhere than the rest.
bool scatters_bundles(const Strategy& strategy);

/// The routines as text, with each block's bundle.
std::string print(const CutGraph& cut);

}  // namespace plimsoll
