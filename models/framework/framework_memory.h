// FrameworkMemory is how a framework uses device memory: what it takes for itself, its allocator,
// and the tensors that it has in addition to a Program's.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/units.h"
#include "models/framework/allocator.h"

namespace plimsoll {

/// LossMemory is the memory that the loss takes in addition to its f32 logits.
enum class LossMemory : std::uint8_t {
  new_gradient,  ///< the gradient of the logits, in backward
  in_place,      ///< nothing: softmax and gradient overwrite the logits
  fused,         ///< nothing in backward; forward has a second f32 copy of the logits for a while
  /// torch.nn.functional.cross_entropy. Until the loss is there, the logits exist in their own
  /// type, in f32, and as logarithms of their softmax. Backward has an f32 gradient of these
  /// logarithms alongside the gradient of the logits. Over mp ranks there are two more f32 copies
  /// (torch.distributed.tensor.parallel.loss).
  by_op,
  /// As by_op, but each rank of mp gathers the logits of the whole vocabulary first, and has all
  /// copies whole. The other of a stage's two buffers contains the logits of the micro-batch
  /// before.
  gathered_by_op,
  /// A kernel reads the logits in their own type and gives their gradient in this type. There are
  /// no f32 logits.
  own_type,
};
inline constexpr std::string_view kLossMemories[] = {"new_gradient", "in_place",       "fused",
                                                     "by_op",        "gathered_by_op", "own_type"};

/// GradientMemory is how gradients of the step lie in memory. Programs have them in f32 in one
/// buffer, and their reductions are costed so.
enum class GradientMemory : std::uint8_t {
  one_buffer,
  /// Each parameter has a gradient tensor of the parameter's type, from the first backward of a
  /// step to the update. The update copies the gradients that it owns to a flat tensor of that
  /// type, and to another in f32. Where gradients are scattered in backward, the gradients of a
  /// block and the shards have that type.
  as_computed,
  /// As computed. Gradients of bf16 parameters that are summed in f32 have a second buffer, which
  /// exists from before the first step. Every rank gets the sums of all parameters, in sharding
  /// stage 1, too. The update copies nothing (DeepSpeed deepspeed/runtime/bf16_optimizer.py:
  /// fp32_groups_gradients_flat, get_grads_for_reduction).
  bf16_also_in_f32,
};

/// ShardMemory is how gathers of sharded parameters and scatters of gradients use memory.
enum class ShardMemory : std::uint8_t {
  /// as in Programs: ops read the gathered memory, and computed gradients are scattered from where
  /// they are
  in_place,
  /// Gathers and scatters use flat copies, which are separate tensors, as in PyTorch's
  /// fully_shard. The only shards of parameters are the optimizer's
  /// (simulator/memory/shard_copies.h).
  flat_copies,
};

/// BorderMemory is how long the tensors at the borders of a pipeline's stage live.
enum class BorderMemory : std::uint8_t {
  by_use,  ///< as in Programs: until they have been sent or used
  /// Received tensors have separate memory for each micro-batch, which is never freed. Tensors
  /// that a stage sends live until the end of the step (simulator/memory/stage_buffers.h).
  for_each,
};

/// CheckpointMemory is where the inputs of recomputed layers lie between forward and backward.
enum class CheckpointMemory : std::uint8_t {
  on_device,  ///< whole, on every rank
  split,      ///< each rank of mp has its part and gathers the whole before it recomputes
  on_host,
};

/// Device memory of a process that no tensor of a Program shows.
struct ProcessMemory {
  Bytes workspace;  ///< scratch memory for library kernels: one buffer on the compute stream
  /// Once for the context, and for each communicator of two ranks and of more ranks.
  Bytes context, pair_communicator, communicator;
  bool operator==(const ProcessMemory&) const = default;
};

/// Tensors that ops of a framework copy.
struct TensorCopies {
  /// Rotary embeddings write new tensors, which live alongside the product whose parts they rotate.
  /// Without it they rotate in place.
  bool rotary = false;
  /// A linear layer that mp splits by columns copies its input, as does Paddle's c_identity. Query,
  /// key and value are such a layer each, and so are gate and up.
  bool split_inputs = false;
  /// Autograd gets a placeholder tensor of the weight's shape for each gradient that a matmul has
  /// added itself. Layers share one placeholder for each shape, which stays; other weights have one
  /// each, which a hook frees. A gradient that no matmul computes is a new tensor until it has been
  /// added. It needs kernels.products.add_gradients.
  bool gradient_placeholders = false;
  bool operator==(const TensorCopies&) const = default;
};

struct FrameworkMemory {
  ProcessMemory process;
  /// Memory is predicted by replaying the step's allocations through this allocator
  /// (simulator/memory/allocation_replay.h). An arena is laid out instead.
  Allocator allocator;
  /// The first update makes the optimizer state, in memory that activations have left.
  bool lazy_optimizer_state = false;
  LossMemory loss = LossMemory::new_gradient;
  GradientMemory gradients = GradientMemory::one_buffer;
  ShardMemory shards = ShardMemory::in_place;
  BorderMemory borders = BorderMemory::by_use;
  CheckpointMemory checkpoints = CheckpointMemory::on_device;
  TensorCopies copies;
  /// Where the host updates all parameters (Strategy::optimizer.offload_percent), its memory holds
  /// scattered gradients, too.
  bool host_gradients = false;
  /// The host's memory holds shards of parameters instead of the device's. The time of copies is
  /// not modelled.
  bool host_parameters = false;
  bool operator==(const FrameworkMemory&) const = default;
};

}  // namespace plimsoll
