// Ownership: which rank of a sharding group updates which tensor, which tensors travel together,
// and where they lie in the buffers they travel in. Pure functions of sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "graph/graph.h"

namespace plimsoll {

// ---- who owns what: sizes of tensors, in bytes or elements, to an owner for each ----

/// Walks the tensors in order and moves on to the next rank once what came before this tensor is
/// more than the ranks so far should hold: at most one rank further per tensor, so a rank behind a
/// large tensor may own nothing (Paddle fleet, meta_optimizers/sharding/shard.py, PR 35593).
std::vector<std::int64_t> prefix_owners(std::span<const std::int64_t> sizes, std::int64_t ranks);
/// Each tensor in order to the least loaded rank, the lowest on ties (Paddle
/// auto_parallel_sharding, partition_algor "greedy_even"). `held`: what each rank has before.
std::vector<std::int64_t> greedy_owners(std::span<const std::int64_t> sizes, std::int64_t ranks,
                                        std::span<const std::int64_t> held = {});
/// Owners by the greedy rule, from the largest tensor to the smallest, equal ones in order
/// (Paddle's dygraph sharding stage 1; longest-processing-time rule, Graham 1969).
std::vector<std::int64_t> sorted_greedy_owners(std::span<const std::int64_t> sizes,
                                               std::int64_t ranks,
                                               std::span<const std::int64_t> held = {});

// ---- what travels together ----

struct FusionMember {
  std::int64_t size = 0;
  DType dtype = DType::f32;
  std::int64_t owner = 0;
  bool alone = false;   ///< never with another
  bool begins = false;  ///< never with the one before it
};
/// Indices of members, in order of the first of each group.
using FusionGroups = std::vector<std::vector<std::size_t>>;

/// In order: a group closes before it would exceed `limit`, and where dtype or owner change; what
/// is larger is alone (Paddle fleet, sharding/utils.py; PyTorch DDP's reducer and DeepSpeed's
/// buckets close the same way).
FusionGroups fuse_below(std::span<const FusionMember> members, std::int64_t limit);
/// Groups after a stable sort by dtype: f16 and bf16 before f32, as merged gradients are ordered
/// (Paddle PR 35070).
FusionGroups fuse_sorted(std::span<const FusionMember> members, std::int64_t limit);
/// One open group per dtype and owner, which closes once it holds `limit` or more (Paddle's eager
/// buffers, imperative/reducer.cc AssignGroupBySize).
FusionGroups fuse_until(std::span<const FusionMember> members, std::int64_t limit);

// ---- where members lie ----

/// Elements of a fused buffer: where each member starts and how far it reaches with its padding.
struct CoalescedLayout {
  std::vector<std::int64_t> offsets, lengths;
  std::int64_t elements = 0;
  bool operator==(const CoalescedLayout&) const = default;
};

/// Each member's bytes rounded up to `alignment` (coalesce_tensor_op: 256 B on GPUs). `element` is
/// what an element counts as: of merged gradients 2 B in every buffer, so that those of f16 and f32
/// have equal offsets.
CoalescedLayout coalesced_layout(std::span<const std::int64_t> elements, Bytes element,
                                 Bytes alignment);

/// ZeRO stage 3: a tensor cut into one chunk per rank, the last ones padded
/// (DeepSpeed zero/partition_parameters.py, PR 1188).
struct ChunkedTensor {
  std::int64_t chunk = 0;    ///< ceil(elements / ranks)
  std::int64_t aligned = 0;  ///< chunk * ranks
  bool operator==(const ChunkedTensor&) const = default;
};
ChunkedTensor chunked(std::int64_t elements, std::int64_t ranks);
/// Elements of a rank's chunk that are not padding.
std::int64_t chunk_elements(std::int64_t elements, std::int64_t ranks, std::int64_t rank);
/// Several tensors gathered at once: each rank's block holds its chunks one after another
/// (DeepSpeed PR 1453). Offsets are within a rank's block; `elements` counts all blocks.
CoalescedLayout coalesced_chunks(std::span<const std::int64_t> elements, std::int64_t ranks);

/// Megatron-Core's gradient buffer (core/distributed/param_and_grad_buffer.py): parameters in
/// reverse order of creation, each start a multiple of 64 elements; a bucket closes once it holds
/// `bucket_elements`, its end padded to lcm(ranks, 128), or lcm(ranks, 128, 2^16) for high bus
/// bandwidth.
struct MegatronLayout {
  std::vector<std::int64_t> offsets;      ///< by parameter, in order of creation
  std::vector<std::int64_t> bucket_ends;  ///< ascending
  bool operator==(const MegatronLayout&) const = default;
};
MegatronLayout megatron_layout(std::span<const std::int64_t> elements, std::int64_t ranks,
                               std::int64_t bucket_elements, bool high_bus_bandwidth = false);

// ---- what is broadcast ----

/// The values of a parameter that ranks which do not own it have to receive.
struct BroadcastParameter {
  TensorId parameter;
  /// The low-precision value that casts of the parameter give: received in its place. The output of
  /// the first cast; later ones are aliases.
  std::optional<TensorId> twin;
  /// Uses that are not casts to the twin. With any, or without casts, the parameter is received.
  std::int64_t other_uses = 0;
  bool receives_parameter() const { return other_uses > 0; }
  bool operator==(const BroadcastParameter&) const = default;
};
/// Parameters that ops outside the optimizer read, in order of their ids; what nothing reads is not
/// sent. (find_broadcast_vars and optimize_cast of Paddle fleet, PR 35878.)
std::vector<BroadcastParameter> find_broadcast_parameters(const Graph& graph);

/// The parameter that a tensor is, or is a cast of, if any.
std::optional<TensorId> parameter_of(const Graph& graph, TensorId id);

/// One broadcast of stage 3 in owner mode: before the first of what it serves, into memory that is
/// freed after the last.
struct UseBroadcast {
  std::size_t value = 0;            ///< what is received: a tensor, or several that travel together
  std::size_t first = 0, last = 0;  ///< places in an order: ops of a Graph, calls of a Program
  bool operator==(const UseBroadcast&) const = default;
};
/// One for every op that reads what is received, in order of the ops; values are tensors, the
/// parameter or its twin (Paddle's stage 3 pass: non-owners receive into a temporary for each, and
/// give it up after the op). Copies of recompute and backward count.
std::vector<UseBroadcast> broadcasts_by_use(const Graph& graph);
/// Once per segment what segments cover: the places of `by_use` are walked backwards, and a segment
/// opens when what it broadcasts has reached `limit` (Paddle fleet's ShardingOptimizer,
/// segment_broadcast_MB). `size`: bytes of a value. Segments in order, in each its broadcasts by
/// their first places.
std::vector<std::vector<UseBroadcast>> broadcasts_by_segment(
    std::span<const UseBroadcast> by_use, const std::function<Bytes(std::size_t)>& size,
    Bytes limit);

}  // namespace plimsoll
