// Ownership says which rank of a sharding group updates which tensor, which tensors travel
// together, and where they lie in the buffers in which they travel. All are pure functions of
// sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "graph/graph.h"

namespace plimsoll {

// ---- Owners: sizes of tensors, in bytes or elements, give an owner for each ----

/// Walks the tensors in order. It moves on to the next rank once the tensors so far are larger than
/// the share of the ranks so far. It moves by at most one rank for each tensor, so a rank behind a
/// large tensor may own nothing (Paddle fleet, meta_optimizers/sharding/shard.py, PR 35593).
std::vector<std::int64_t> prefix_owners(std::span<const std::int64_t> sizes, std::int64_t ranks);
/// Gives each tensor in order to the least loaded rank, and to the lowest of equals (Paddle
/// auto_parallel_sharding, partition_algor "greedy_even"). `held` is the load that each rank has
/// before.
std::vector<std::int64_t> greedy_owners(std::span<const std::int64_t> sizes, std::int64_t ranks,
                                        std::span<const std::int64_t> held = {});
/// Gives owners by the greedy rule, from the largest tensor to the smallest, equal ones in order
/// (Paddle's dygraph sharding stage 1; longest-processing-time rule, Graham 1969).
std::vector<std::int64_t> sorted_greedy_owners(std::span<const std::int64_t> sizes,
                                               std::int64_t ranks,
                                               std::span<const std::int64_t> held = {});

// ---- Fusion: tensors that travel together ----

struct FusionMember {
  std::int64_t size = 0;
  DType dtype = DType::f32;
  std::int64_t owner = 0;
  bool alone = false;   ///< the member is in a group of its own
  bool begins = false;  ///< the member begins a new group
};
/// Groups of members' indices, in order of the first member of each group.
using FusionGroups = std::vector<std::vector<std::size_t>>;

/// Fuses members in order. A group closes before it would exceed `limit`, and where dtype or owner
/// change. A member larger than `limit` is alone (Paddle fleet, sharding/utils.py; PyTorch DDP's
/// reducer and DeepSpeed's buckets close their groups in this way).
FusionGroups fuse_below(std::span<const FusionMember> members, std::int64_t limit);
/// Fuses as fuse_below() does, after a stable sort by dtype with f16 and bf16 before f32, as merged
/// gradients are ordered (Paddle PR 35070).
FusionGroups fuse_sorted(std::span<const FusionMember> members, std::int64_t limit);
/// Keeps one open group for each dtype and owner, and closes it once it holds `limit` or more
/// (Paddle's eager buffers, imperative/reducer.cc AssignGroupBySize).
FusionGroups fuse_until(std::span<const FusionMember> members, std::int64_t limit);

// ---- Layouts: where members lie in a buffer ----

/// A CoalescedLayout has the elements of a fused buffer: where each member starts, and its length
/// with padding.
struct CoalescedLayout {
  std::vector<std::int64_t> offsets, lengths;
  std::int64_t elements = 0;
  bool operator==(const CoalescedLayout&) const = default;
};

/// Rounds each member's bytes up to `alignment` (coalesce_tensor_op: 256 B on GPUs). `element` is
/// the size that an element counts as. Merged gradients count 2 B in every buffer, so that f16 and
/// f32 buffers have equal offsets.
CoalescedLayout coalesced_layout(std::span<const std::int64_t> elements, Bytes element,
                                 Bytes alignment);

/// A ChunkedTensor is a tensor in ZeRO stage 3: cut into one chunk for each rank, with the last
/// chunks padded (DeepSpeed zero/partition_parameters.py, PR 1188).
struct ChunkedTensor {
  std::int64_t chunk = 0;    ///< ceil(elements / ranks)
  std::int64_t aligned = 0;  ///< chunk * ranks
  bool operator==(const ChunkedTensor&) const = default;
};
ChunkedTensor chunked(std::int64_t elements, std::int64_t ranks);
/// Returns the elements of a rank's chunk that are not padding.
std::int64_t chunk_elements(std::int64_t elements, std::int64_t ranks, std::int64_t rank);
/// Returns the layout of several tensors that are gathered at once. Each rank's block holds its
/// chunks one after another (DeepSpeed PR 1453). Offsets are within a rank's block; `elements`
/// counts all blocks.
CoalescedLayout coalesced_chunks(std::span<const std::int64_t> elements, std::int64_t ranks);

/// MegatronLayout is Megatron-Core's gradient buffer (core/distributed/param_and_grad_buffer.py).
/// Parameters are in reverse order of creation, and each starts at a multiple of 64 elements. A
/// bucket closes once it holds `bucket_elements`. Its end is padded to lcm(ranks, 128), or to
/// lcm(ranks, 128, 2^16) for high bus bandwidth.
struct MegatronLayout {
  std::vector<std::int64_t> offsets;      ///< by parameter, in order of creation
  std::vector<std::int64_t> bucket_ends;  ///< ascending
  bool operator==(const MegatronLayout&) const = default;
};
MegatronLayout megatron_layout(std::span<const std::int64_t> elements, std::int64_t ranks,
                               std::int64_t bucket_elements, bool high_bus_bandwidth = false);

// ---- Broadcasts of parameters ----

/// A BroadcastParameter has the values of a parameter that ranks which do not own it must receive.
struct BroadcastParameter {
  TensorId parameter;
  /// The low-precision value that casts of the parameter give. It is received in place of the
  /// parameter. It is the output of the first cast, and outputs of later casts are aliases of it.
  std::optional<TensorId> twin;
  /// The number of uses that are not casts to the twin. Where there are such uses, or no casts, the
  /// parameter itself is received.
  std::int64_t other_uses = 0;
  bool receives_parameter() const { return other_uses > 0; }
  bool operator==(const BroadcastParameter&) const = default;
};
/// Returns the parameters that ops outside the optimizer read, in order of their ids. A parameter
/// that nothing reads is not sent (find_broadcast_vars and optimize_cast of Paddle fleet, PR
/// 35878).
std::vector<BroadcastParameter> find_broadcast_parameters(const Graph& graph);

/// Returns the parameter that a tensor is, or of which it is a cast, if any.
std::optional<TensorId> parameter_of(const Graph& graph, TensorId id);

/// A UseBroadcast is one broadcast of stage 3 in owner mode. It runs before the first use that it
/// serves, into memory that is freed after the last one.
struct UseBroadcast {
  std::size_t value = 0;  ///< the received value: a tensor, or several that travel together
  std::size_t first = 0, last = 0;  ///< positions in an order of ops (Graph) or calls (Program)
  bool operator==(const UseBroadcast&) const = default;
};
/// Returns one broadcast for every op that reads a received value, in order of the ops. Values are
/// tensors: the parameter or its twin. Copies of recompute and backward count as ops. (Paddle's
/// stage 3 pass: non-owners receive into a temporary for each op and free it after the op.)
std::vector<UseBroadcast> broadcasts_by_use(const Graph& graph);
/// Returns one broadcast of each value in each segment of the step. The positions of `by_use` are
/// walked backwards, and a segment ends when its broadcasts have reached `limit` bytes (Paddle
/// fleet's ShardingOptimizer, segment_broadcast_MB). `size` gives the bytes of a value. Segments
/// are in order, and the broadcasts of each are ordered by their first positions.
std::vector<std::vector<UseBroadcast>> broadcasts_by_segment(
    std::span<const UseBroadcast> by_use, const std::function<Bytes(std::size_t)>& size,
    Bytes limit);

}  // namespace plimsoll
