// An arena layout says where each parameter of a stage lies in the flat arenas, and in which
// buckets parameters and gradients travel.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "graph/program.h"
#include "passes/cut/cut_blocks.h"
#include "passes/owners/owned_cuts.h"
#include "passes/strategy/pass_context.h"
#include "passes/strategy/sharding_rules.h"
#include "passes/strategy/stage_layout.h"

namespace plimsoll {

/// ElementTypes has the type of each element of an arena, and its place in it. Offsets
/// in elements are common to all arenas of a stage; offsets in bytes differ between arenas of
/// different types.
class ElementTypes {
 public:
  /// Adds elements of this type at the end.
  void append(std::int64_t elements, DType type) {
    if (runs_.empty() || runs_.back().type != type) runs_.push_back({elements_, bytes_, type});
    elements_ += elements;
    bytes_ += elements * bytes_of(type);
  }
  /// Returns the bytes from the start of the arena to an element, or to the arena's end.
  Bytes offset(std::int64_t element) const {
    if (runs_.empty()) return {};
    const Run& run = run_of(element);
    return run.bytes + (element - run.begin) * bytes_of(run.type);
  }
  DType at(std::int64_t element) const { return runs_.empty() ? DType::f32 : run_of(element).type; }
  /// Returns the bytes of elements [begin, begin + count).
  Bytes bytes(std::int64_t begin, std::int64_t count) const {
    return offset(begin + count) - offset(begin);
  }

 private:
  struct Run {
    std::int64_t begin = 0;  ///< elements
    Bytes bytes;             ///< from the start of the arena
    DType type = DType::f32;
  };
  const Run& run_of(std::int64_t element) const {
    std::size_t i = runs_.size() - 1;
    while (i > 0 && runs_[i].begin > element) --i;
    return runs_[i];
  }

  std::vector<Run> runs_;
  std::int64_t elements_ = 0;
  Bytes bytes_;
};

/// An Instance is one instance of a block on a stage.
struct Instance {
  BlockId block;
  std::int64_t layer = 0;     ///< as BlockInstance::number
  std::int64_t base = 0;      ///< elements from the start of the arenas to its bundle
  std::int64_t elements = 0;  ///< elements of the bundle
  Bytes frozen;               ///< from the start of their arena to its frozen parameters
};

/// A FrozenRange is frozen parameters that are gathered at once: those of an instance, or the one
/// that another block reads, too.
struct FrozenRange {
  Bytes begin, bytes;
  std::size_t instance = 0;
  bool tied = false;
  bool copy = false;  ///< the instance reads the tied parameter of another stage
};

struct ArenaLayout {
  std::int64_t stage = 0;
  std::vector<Instance> instances;  ///< chunk by chunk, each in the order of the model
  /// For each chunk of the stage, the index of its first instance and one past its last.
  std::vector<std::pair<std::size_t, std::size_t>> chunks;
  std::vector<Segment> segments;
  /// For each segment, the instance that produces its gradient (index into instances), and its
  /// parameter.
  std::vector<std::size_t> producer;
  std::vector<TensorId> parameter;
  /// index in the block's bundle; none for a tied copy
  std::vector<std::optional<std::size_t>> entry;
  std::vector<Bucket> buckets;
  /// whether the bucket holds the parameter that first and last stage share
  std::vector<bool> tied_bucket;
  bool coalesces = false;               ///< OwnerMode::coalesces
  std::vector<std::size_t> completion;  ///< buckets in the order in which backward completes them
  /// ranges in which parameters travel: `buckets`, unless tensors are owned
  std::vector<Bucket> gathers;
  /// For each instance and each entry of its block's bundle, the element at which the tensor
  /// begins.
  std::vector<std::vector<std::int64_t>> entries;
  /// The element at which the parameter of `tied_parameters` slots begins, if there is one.
  std::optional<std::int64_t> tied_base;
  std::int64_t tied_elements = 0;  ///< its length with padding
  /// The collective that adds up its gradient on the two stages that share it, if this is one.
  std::optional<Op> tied_sum;
  std::vector<Segment> frozen;  ///< as Program::frozen
  std::vector<FrozenRange> frozen_ranges;
  std::int64_t elements = 0;           ///< length of the arenas, with padding
  ElementTypes parameters, gradients;  ///< gradients have one type
  /// The types of the arenas for gradients of a micro-batch, where there are such arenas
  /// (gradient_merge = fused).
  std::optional<ElementTypes> micro_batch_gradients;
  DType gradient_type() const { return gradients.at(0); }
  /// the type of all parameters, in stage 3
  DType parameter_type() const { return parameters.at(0); }
};

/// Returns the range of the frozen parameter that several blocks read, if there is one.
const FrozenRange* tied_frozen(const ArenaLayout& layout);
/// Returns the first of the segments that lie in a bucket, and one past the last.
std::pair<std::size_t, std::size_t> segments_in(const ArenaLayout& layout, const Bucket& bucket);
/// Returns the index of the bucket in which an element lies.
std::size_t bucket_at(const std::vector<Bucket>& buckets, std::int64_t element);
/// Returns the element at which the parameters or gradients of a slot of an instance begin.
std::int64_t element_of(const ArenaLayout& layout, const Slot& slot, std::size_t instance);
/// Returns the instances with the owners of their tensors, and of the tied one.
std::vector<OwnedInstance> owned_instances(const ArenaLayout& layout);
/// Returns the element at which the tensors of an owner begin. They lie together.
std::int64_t owner_begin(const ArenaLayout& layout, std::int64_t owner);
/// Returns whether tensors of an owner that travel together are first copied together. A tensor
/// that travels alone is not. Once the fused buffer exists, its members point into it, so the copy
/// is onto itself.
bool is_coalesced(const ArenaLayout& layout, const Bucket& bucket);
/// Lays out the arenas of a stage. Bundles are in reverse order of the instances, so that gradients
/// become complete from front to back and buckets are contiguous. A bucket closes before it would
/// exceed `limit`; a larger parameter is alone (as in DeepSpeed and PyTorch DDP). A framework that
/// does not overlap reductions with backward has one bucket, and a second one for a parameter that
/// two stages share. From sharding stage 2 on, and where gradients are reduced in every
/// micro-batch, a bucket is one bundle or a part of one. In stage 3 a bucket is gathered at once,
/// and grad_bucket_bytes does not count. Each rank owns an equal part of each bucket, so that
/// gathers and reductions work on contiguous ranges. With gather = module, a bucket is a parameter
/// with the parameters after it that start as zeros (biases).
///
/// Where whole tensors are owned, the tensors of one owner lie together, the last owner's first,
/// each in the order above; with prefix ownership this is the same order. Buckets then end where
/// the owner changes, and gradients and parameters have limits of their own
/// (passes/owners/ownership.h). From stage 2 on both also end at bundles. The parameter that
/// first and last stage share then has one owner on both stages, which is that of the first stage,
/// since only owners keep its gradient.
ArenaLayout lay_out_arenas(const Graph& graph, const CutGraph& cut, const PassContext& context,
                           const StageLayout& stages, std::int64_t stage);

}  // namespace plimsoll
