// A Graph is cut into routines: each block's forward and backward, with every tensor in a slot or
// in the frame. Backward is two routines where the schedule delays weight gradients. The cut also
// lays out each block's parameter bundle.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/program.h"
#include "passes/strategy/sharding_rules.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

/// A BundleEntry is one parameter within its block's bundle. Its range is the same in the parameter
/// and gradient arenas.
struct BundleEntry {
  TensorId parameter;
  std::int64_t offset = 0, elements = 0;  ///< elements; offsets are multiples of the alignment
};

/// A FrozenEntry is one frozen parameter within its block's range of the arena of frozen
/// parameters.
struct FrozenEntry {
  TensorId parameter;
  Bytes offset;
};

/// Returns the number of elements to a multiple of which parameters are padded. Any run of
/// parameters then splits into shards that start on a block boundary, in the smallest type that has
/// an arena.
std::int64_t arena_alignment(const Job& job, const Strategy& strategy);
/// Returns `elements` rounded up to a multiple of the alignment.
std::int64_t padded(std::int64_t elements, std::int64_t alignment);

/// A BackwardCut says how a block's backward becomes routines.
enum class BackwardCut : std::uint8_t {
  whole,
  /// two routines: the gradient of the input, and those of parameters
  split,
};

/// A RoutinePart is a run of the ops of a routine. Parts are called one after the other, and calls
/// of other routines may be issued between them.
struct RoutinePart {
  struct Awaited {
    std::size_t part = 0, port = 0;
  };
  Routine routine;
  std::vector<Awaited> waits;  ///< ports of the parts before
};

struct CutBlock {
  Routine forward;
  Routine backward;         ///< split: only the gradient of its input; may have no ops
  Routine weight_gradient;  ///< split: all other gradients; else without ops
  Routine weight_copies;    ///< before the first forward of a step; may have no ops
  /// The ops of `forward` and `backward` in parts (exchange_parts.h). They are empty unless
  /// exchanges are apart, and where no exchange has anything behind it.
  std::vector<RoutinePart> forward_parts, backward_parts;
  /// Whether the host's memory may also hold the block's input, which has no slot `offloaded`.
  bool offloads_input = false;
  /// The entries are in reverse order of creation, which is the order of backward. Parameters that
  /// stay whole in sharding stage 3 come last. Within either kind, parameters with a gradient_group
  /// come last.
  std::vector<BundleEntry> bundle;
  std::int64_t bundle_elements = 0;    ///< a multiple of the alignment
  std::int64_t gathered_elements = 0;  ///< without the parameters that stay whole
  /// Frozen parameters in order of creation. One that other blocks read, too, comes last, from
  /// `tied_begin` on, so that it can be gathered alone.
  std::vector<FrozenEntry> frozen;
  Bytes frozen_bytes, tied_begin;
};

/// A ParameterRoutine is the part of the update that works on one parameter of every instance of
/// its block.
struct ParameterRoutine {
  TensorId parameter;
  Routine routine;
};

/// An UpdatePart is a run of once-per-step ops that all have a block, or all have none.
struct UpdatePart {
  Routine routine;  ///< ops without a block, which work on arenas of the Graph's sizes
  std::vector<ParameterRoutine> each;  ///< ops with blocks
};

struct CutGraph {
  std::int64_t alignment = 1;      ///< elements to a multiple of which parameters are padded
  std::vector<CutBlock> blocks;    ///< parallel to graph.blocks
  Routine begin_step;              ///< zeroes gradients; arenas have the Graph's sizes
  std::vector<UpdatePart> update;  ///< norm, clip, update
};

/// CutChoices say how the blocks of a graph are cut.
struct CutChoices {
  BackwardCut backward = BackwardCut::whole;
  /// Parameters that stay whole in sharding stage 3. They get a slot of their own,
  /// resident_parameters.
  ResidentParameters resident{};
  /// The parameters of a block do not lie together, so each parameter and each gradient has a slot
  /// of its own. They have slots of their own also where their types differ.
  bool scattered = false;
  /// Routines are also cut at the exchanges of experts.
  bool exchanges_apart = false;
  /// The share of the bytes kept for backward that the host's memory may hold, in percent
  /// (Strategy::offloaded).
  std::int64_t offload_percent = 0;
};
CutChoices cut_choices(const Strategy& strategy);

/// Every parameter starts at, and is padded to, a multiple of `alignment` elements, so that any run
/// of parameters splits evenly into aligned shards.
CutGraph cut_blocks(const Graph& graph, std::int64_t alignment, const CutChoices& choices = {});
/// Cuts one block of the graph. `rewrite` changes the ops of a routine before they are cut. Saved
/// tensors that no op then names are left out.
CutBlock cut_block(const Graph& graph, BlockId block, std::int64_t alignment,
                   const CutChoices& choices,
                   const std::function<std::vector<Op>(std::vector<Op>)>& rewrite = {});
/// Returns the kind of backward that a strategy's schedule needs.
BackwardCut backward_cut(const Strategy& strategy);
/// Returns whether parameters, or the gradients that micro-batches write, have several types.
/// Tensors of one type then lie together.
bool mixes_types(const Graph& graph);

/// Returns the routines as text, with each block's bundle.
std::string print(const CutGraph& cut);

}  // namespace plimsoll
