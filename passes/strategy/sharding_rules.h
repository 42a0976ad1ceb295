// Sharding rules say what a sharding stage keeps as shards, and which communications overlap.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "passes/strategy/pass_context.h"

namespace plimsoll {

/// Returns whether gradients are kept as shards and reduced in every micro-batch (stages 2 and 3).
bool shards_gradients(const Strategy& strategy);
/// Returns whether gradients are reduced in every micro-batch: with such shards, with
/// grad_reduction per_micro_batch, and where backward updates parameters.
bool reduces_per_micro_batch(const Strategy& strategy);
/// Returns whether parameters are kept as shards and gathered where they are used (stage 3).
bool shards_parameters(const Strategy& strategy);
/// Returns the number of elements up to which parameters stay whole.
std::int64_t resident_limit(const Strategy& strategy);
/// The parameters that stay whole in stage 3. cut_blocks needs nothing else of the strategy.
struct ResidentParameters {
  std::int64_t limit = 0;  ///< they have up to so many elements
  bool experts = false;    ///< those of experts do: each is on one rank alone, in its memory
  bool all = false;        ///< all trained ones do, as there are no other ranks
  bool has(const Tensor& parameter) const {
    return all || elements(parameter.shape) <= limit || (experts && is_of_experts(parameter));
  }
};
ResidentParameters resident_parameters(const Strategy& strategy);
/// Returns whether tensors are updated one by one, each as a matrix, and their moments follow each
/// other.
bool updates_matrices(const Job& job);
/// Returns the number of ranks that each have a part of what is kept as shards.
std::int64_t shards_of(const Strategy& strategy, bool experts);
/// Returns whether every rank gets the whole sum of gradients although it updates a part alone:
/// DeepSpeed's optimizer for bf16 (deepspeed/runtime/bf16_optimizer.py) has f32 sums of all
/// gradients, of which runtime/pipe/engine.py, _bf16_reduce_grads, makes all-reduces.
bool sums_whole_gradients(const PassContext& context);
/// Returns whether the strategy asks for the overlap and the framework can do it.
bool overlaps_grad_reduce(const PassContext& context);
bool overlaps_param_gather(const PassContext& context);

/// Returns the owners of the classes of ranks of one stage (Program::owner): each sharding
/// coordinate, or one class without an owner if all ranks own equal parts.
std::vector<std::optional<std::int64_t>> owner_classes(const Strategy& strategy);
/// Returns the number of ranks that each update an equal part of the same elements: those of
/// optimizer_shards(), or 1 if ranks own whole tensors.
std::int64_t equal_shards(const Strategy& strategy);
/// Returns the class of a rank of the strategy's grid, as class_of() (graph/program.h) numbers
/// them.
std::size_t class_of_rank(const Strategy& strategy, std::int64_t rank);

inline constexpr Bytes kLeastBucket{4096};
/// Checks which strategies may have owners of whole tensors, and which choices only such strategies
/// have.
Verdict owners_are_legal(const Strategy& strategy);

}  // namespace plimsoll
