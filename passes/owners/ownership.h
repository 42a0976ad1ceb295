// Ownership is which rank of a sharding group updates which tensor, and which tensors travel
// together. Both are pure functions of sizes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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
/// Fuses members in order. Returns groups of their indices. A group closes before it would exceed
/// `limit`, and where dtype or owner change. A member larger than `limit` is alone (Paddle fleet,
/// sharding/utils.py; PyTorch DDP's reducer and DeepSpeed's buckets close their groups in this
/// way).
std::vector<std::vector<std::size_t>> fuse_below(std::span<const FusionMember> members,
                                                 std::int64_t limit);

}  // namespace plimsoll
