// Where each parameter of a stage lies in the flat arenas, and the buckets they are reduced in.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "graph/program.h"
#include "passes/cut/cut_blocks.h"
#include "passes/graph/element_types.h"
#include "passes/strategy/pass_context.h"
#include "passes/strategy/sharding_rules.h"

namespace plimsoll {

/// One instance of a block on a stage.
struct Instance {
  BlockId block;
  std::int64_t layer = 0;     ///< index of the instance within its block, over the whole model
  std::int64_t base = 0;      ///< elements from the start of the arenas to its bundle
  std::int64_t elements = 0;  ///< of the bundle
};

struct ArenaLayout {
  std::vector<Instance> instances;  ///< chunk by chunk, each in chain order
  /// For each chunk of the stage, its first instance and the one after its last.
  std::vector<std::pair<std::size_t, std::size_t>> chunks;
  std::vector<Segment> segments;
  /// Instance that produces the gradient of each segment (index into instances) and its parameter.
  std::vector<std::size_t> producer;
  std::vector<TensorId> parameter;
  std::vector<std::optional<std::size_t>> entry;  ///< of the block's bundle; none for a tied copy
  std::vector<Bucket> buckets;
  std::vector<bool> tied_bucket;        ///< holds the parameter that first and last stage share
  std::vector<std::size_t> completion;  ///< buckets in the order in which backward completes them
  std::vector<Bucket> gathers;  ///< what parameters travel in; buckets, unless tensors are owned
  /// By instance and entry of its block's bundle: elements to the tensor.
  std::vector<std::vector<std::int64_t>> entries;
  /// Elements to the parameter that `tied_parameters` slots bind to, if there is one.
  std::optional<std::int64_t> tied_base;
  std::int64_t tied_elements = 0;      ///< its room
  std::int64_t elements = 0;           ///< of the arenas, with padding
  ElementTypes parameters, gradients;  ///< gradients are of one type
  /// Where gradients of a micro-batch have arenas of their own (gradient_merge = fused).
  std::optional<ElementTypes> micro_batch_gradients;
  DType gradient_type() const { return gradients.at(0); }
  DType parameter_type() const { return parameters.at(0); }  ///< of all of them, in stage 3
};

/// First and one past the last of the segments that lie in a bucket.
std::pair<std::size_t, std::size_t> segments_in(const ArenaLayout& layout, const Bucket& bucket);
/// The bucket of a list that an element lies in: index.
std::size_t bucket_at(const std::vector<Bucket>& buckets, std::int64_t element);
/// Where the tensors of an owner begin, in elements; they lie together.
std::int64_t owner_begin(const ArenaLayout& layout, std::int64_t owner);
/// Whether tensors of an owner that travel together are copied together first: not where one
/// travels alone. Members point into the fused buffer once that exists, so the copy is onto itself.
bool is_coalesced(const Strategy& strategy, const ArenaLayout& layout, const Bucket& bucket);
/// Bundles in reverse order of the instances, so that gradients become complete from front to back
/// and buckets are contiguous. A bucket closes before it would exceed `limit`; a larger parameter
/// is alone (as in DeepSpeed and PyTorch DDP). A framework that does not overlap reductions with
/// backward has one bucket, and beside it that of a parameter that two stages share.
/// From sharding stage 2 on, and where gradients are reduced in every micro-batch, a bucket is one
/// bundle or part of one. In stage 3 a bucket is what is gathered at once, whatever
/// grad_bucket_bytes is: a rank owns an equal part of each, so that gathers and reductions work on
/// contiguous ranges. A module there is a parameter with those after it that start as zeros
/// (biases).
///
/// Where whole tensors are owned, those of an owner lie together, the last owner's first, each in
/// the order above: with prefix ownership that is the same order. Buckets then end where the owner
/// changes, and gradients and parameters have limits of their own (passes/graph/ownership.h). From
/// stage 2 on both end at bundles, too. The parameter that first and last stage share then has one
/// owner on both, the first stage's, since only owners keep its gradient.
ArenaLayout lay_out_arenas(const Graph& graph, const CutGraph& cut, const PassContext& context,
                           std::int64_t stage, std::int64_t alignment);

}  // namespace plimsoll
