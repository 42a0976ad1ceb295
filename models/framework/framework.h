// Framework: how an executor runs ops. The passes lower for it, the cost model charges for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "models/framework/allocator.h"
#include "models/framework/capabilities.h"

namespace plimsoll {

/// Where each group of fields comes from: document, code or measurement.
struct FrameworkSources {
  std::string kernels;      ///< fused_*, separate_qkv, flash_attention, masks_*, stores_*
  std::string parallelism;  ///< vocabulary_multiple, sequence_parallel, overlap_*
  std::string dispatch;     ///< dispatch_*, ops_per_kernel
  std::string waits;        ///< transfers_hold, host_*; empty where it never waits
  std::string memory;       ///< workspace, context_memory, communicator_memory
  std::string allocator;    ///< allocator and what it allocates beside the Program's tensors
  bool operator==(const FrameworkSources&) const = default;
};

/// A pipeline transfer holds up this, beside the ops that read it.
enum class TransfersHold : std::uint8_t {
  nothing,  ///< transfers have streams of their own
  compute,  ///< kernels that are issued after a transfer begin when it has ended
  host,     ///< the host waits until everything on its device has ended
};

/// Memory that the loss takes beside its f32 logits.
enum class LossMemory : std::uint8_t {
  new_gradient,  ///< their gradient, in backward
  in_place,      ///< nothing: softmax and gradient overwrite them
  fused,         ///< the same, but forward has a second f32 copy for a while
  /// torch.nn.functional.cross_entropy: the logits in their own type until the loss is there, in
  /// f32, and the logarithms of their softmax; backward has an f32 gradient of the latter beside
  /// that of the logits. Over mp ranks two more f32 copies: torch.distributed.tensor.parallel.loss.
  by_op,
  /// A kernel reads the logits in their own type and gives their gradient in it: no f32 ones.
  own_type,
};
inline constexpr std::string_view kLossMemories[] = {"new_gradient", "in_place", "fused", "by_op",
                                                     "own_type"};

/// How gradients of the step lie in memory. Programs have them in f32 and in one buffer, and cost
/// their reductions so.
enum class GradientMemory : std::uint8_t {
  one_buffer,
  /// A tensor for each parameter, of the parameter's type, from the first backward of a step to its
  /// update. That copies what it owns to a flat tensor of that type and to another in f32. Where
  /// gradients are scattered in backward: those of a block, and shards, of that type.
  as_computed,
};

/// How gathers of sharded parameters and scatters of gradients use memory.
enum class ShardMemory : std::uint8_t {
  in_place,  ///< as in Programs: what is gathered is read, and what is computed is scattered
  /// Both are flat copies of tensors of their own, as in PyTorch's fully_shard; there are no shards
  /// of parameters but the optimizer's (simulator/memory/shard_copies.h).
  flat_copies,
};

/// How long the tensors at the borders of a pipeline's stage live.
enum class BorderMemory : std::uint8_t {
  by_use,  ///< as in Programs: until they are sent, and until they have been used
  /// Received tensors have memory for each micro-batch, for good. Tensors that a stage gives live
  /// to the end of the step (simulator/memory/stage_buffers.h).
  for_each,
};

/// Where the borders lie that layers are repeated from, between forward and backward.
enum class CheckpointMemory : std::uint8_t {
  on_device,  ///< whole, on every rank
  split,      ///< each rank of mp has its part and gathers the whole before it repeats
  on_host,
};

/// Devices on which planner-run executes what is lowered for a framework.
enum class RunsOn : std::uint8_t { nothing, cpu_cores, gpus };

/// Facts about a framework beside how it runs ops. Plan files leave them out: they belong to the
/// framework's name.
struct FrameworkFacts {
  /// The framework whose fits hold for it, since they differ in nothing that fits move; empty:
  /// itself.
  Sourced<std::string> calibrated_as;
  /// Whether rates typical of training say more of its steps than what kernels reach alone.
  Sourced<bool> typical_rates{true};
  RunsOn runs_on = RunsOn::nothing;
  bool operator==(const FrameworkFacts&) const = default;
};

/// Every framework here has layer norm as one kernel, masked softmax of 16 bits as one kernel (the
/// scale is the score matmul's), and weight gradients accumulated by their matmul: there is no
/// field for these.
struct Framework {
  std::string name;
  /// The strategies that it runs.
  Capabilities can;

  // Kernels. Where a linear layer's bias is added: by the first of these that applies, else by an
  // op of its own.
  bool fused_bias_gelu = false;  ///< the GELU after the layer adds it, forward and backward
  bool fused_bias_add = false;   ///< the residual add after the layer adds it
  bool fused_bias = true;        ///< the layer's matmul adds it
  /// Query, key and value come from three linear layers, where the job has one for all of them and
  /// no rotary embedding. Not together with flash_attention.
  bool separate_qkv = false;
  /// A kernel sums the squares of a tensor; else two, with its squares in memory between them.
  bool squared_norm = true;
  /// Attention is one kernel that keeps no scores (Dao 2022, arXiv 2205.14135); else matmul,
  /// softmax, matmul.
  bool flash_attention = false;

  /// Scores in f32 are masked by a kernel of its own before their softmax; those of 16 bits by the
  /// softmax's. Not together with flash_attention.
  bool masks_f32_apart = false;

  /// Dropout writes a mask of one byte per element that backward reads (arXiv 2205.05198, section
  /// 4.1); else backward draws it again. Flash attention always draws its own again.
  bool stores_dropout_masks = false;

  // Rules of its parallelism.
  /// It pads the vocabulary to a multiple of this times mp. Published runs are predicted so;
  /// commands, which search mp, pad a job to a multiple of this. Programs by themselves pad to one
  /// of mp.
  std::int64_t vocabulary_multiple = 1;
  bool sequence_parallel = true;  ///< can split tokens over mp (arXiv 2205.05198)
  /// Backward gathers tokens over mp again, rather than that forward, or what it repeats of it,
  /// keeps them whole (arXiv 2205.05198, section 4.2.2). Only matters with sequence_parallel.
  bool gathers_tokens_again = true;
  /// Recompute per_op keeps its tensors even if backward does not read them.
  bool keeps_unread = false;
  /// Recompute repeats everything, as torch.utils.checkpoint does with reentry; else only as far as
  /// backward reads it.
  bool recompute_repeats_all = false;
  /// Gradient buckets are reduced while the last micro-batch's backward still runs. Else all
  /// gradients are reduced after it, as one buffer: grad_bucket_bytes changes nothing.
  bool overlap_grad_reduce = true;
  /// The gradient of a column-parallel layer's input is summed over mp while that of its weight is
  /// computed.
  bool overlap_tensor_gradients = false;
  /// A gather over mp and the products that read it, or a product and the scatter of what it gives,
  /// go on part by part, one for each rank (simulator/costs/async_products.h).
  bool async_tensor_parallel = false;
  /// Parameters are gathered in the next step, while its first forwards run. Else at the end of the
  /// step. Only matters with sharding_degree > 1.
  bool overlap_param_gather = false;

  /// Host time to issue one op (a kernel or a communication) where no calibration measured it.
  Seconds dispatch_op;
  /// Host time to issue a communication, on top.
  Seconds dispatch_communication;
  /// Ops that it issues for one kernel of a block's forward, recompute or backward here, where it
  /// has reshapes, transposes, scales, gradient sums and casts of activations as ops of their own.
  /// Casts of parameters, merges of gradients, the optimizer and communications count one each.
  double ops_per_kernel = 1;
  /// Host time of an op of backward to that of another; not of communications: autograd's engine
  /// calls backward from C++, what communicates from Python again.
  double backward_dispatch = 1;
  /// On top, for what gathers parameters in the middle of a step (sharding stage 3).
  Seconds dispatch_gather;
  /// On top, for each gradient of a parameter that a micro-batch's backward completes: its hook.
  Seconds dispatch_gradient;

  // Where the host waits for its device before it issues more, where streams run by themselves.
  /// Consecutive transfers are one exchange, which holds once. Where stages hold several parts of
  /// the model only receives hold, since two neighbours exchange at different places in their
  /// order.
  TransfersHold transfers_hold = TransfersHold::nothing;
  /// With virtual stages, what a computation begins from is received while the one before it runs;
  /// else, and without virtual stages, after that.
  bool receives_ahead = false;
  /// The host reads the norm of the gradients, and whether they are finite, before it goes on.
  bool host_reads_norm = false;
  /// Before a micro-batch's forward, on every stage, the host reads from the device how large its
  /// sequences are: it waits for all that the compute stream has been given.
  bool host_reads_batch = false;
  /// The host waits for each gather of parameters.
  bool host_waits_for_gathers = false;
  /// From the end of what the host waited for until it goes on.
  Seconds host_wait;

  /// Scratch memory for library kernels: one buffer on the compute stream.
  Bytes workspace;
  /// Device memory of a process that no tensor shows: once, and for each communicator of two and of
  /// more ranks.
  Bytes context_memory, pair_communicator_memory, communicator_memory;

  /// Where tensors live. Memory is predicted by replaying the step's allocations through it
  /// (simulator/memory/allocation_replay.h); an arena is laid out instead.
  Allocator allocator;
  /// Optimizer state is made by the first update, from memory that activations have left.
  bool lazy_optimizer_state = false;
  /// A matmul adds to the gradient of its weight (apex fused_weight_gradient_mlp_cuda); else each
  /// gradient of a micro-batch is a tensor until it has been added.
  bool adds_gradients_in_matmul = true;
  /// Autograd is handed a tensor of each weight's shape in place of the gradient that a matmul has
  /// added: of the layers one for each shape, which stays; of others one that its hook frees. What
  /// no matmul computes is a new tensor until it has been added. Only with
  /// adds_gradients_in_matmul.
  bool stands_in_for_gradients = false;
  /// Rotary embeddings make new tensors, beside the product whose parts they turn; else they turn
  /// them in place.
  bool copies_rotary = false;
  /// GELU and norms are formulas of several ops, norms and softmax in f32; each op keeps what its
  /// backward reads.
  bool elementwise_by_op = false;
  LossMemory loss_memory = LossMemory::new_gradient;
  GradientMemory gradient_memory = GradientMemory::one_buffer;
  ShardMemory shard_memory = ShardMemory::in_place;
  BorderMemory border_memory = BorderMemory::by_use;
  /// The host's memory has these instead of the device's; the time of copies is left out. They are
  /// masters, moments and scattered gradients; shards of parameters.
  bool host_optimizer = false, host_parameters = false;
  CheckpointMemory checkpoint_memory = CheckpointMemory::on_device;

  FrameworkSources sources;
  FrameworkFacts facts;
  bool operator==(const Framework&) const = default;
};

/// Rows of the vocabulary over mp ranks as the framework pads them.
std::int64_t padded_vocabulary(std::int64_t rows, const Framework& framework, std::int64_t mp);
/// Whether they differ at most in what calibrations say of them: host time, and memory that no
/// tensor shows. They lower to the same Programs.
bool lowers_alike(Framework a, const Framework& b);

/// Whether planner-run can execute what is lowered for it.
bool runs_here(const Framework& framework);
/// Name of the framework whose fitted calibrations hold for this one.
std::string calibrated_as(const Framework& framework);

// The built-in frameworks: models/presets/frameworks.

/// The bundled runtime (planner-run) on CPU cores. Its Programs run on every backend.
const Framework& bundled_framework();
/// The bundled runtime with the kernels of its cuda backend.
const Framework& bundled_cuda_framework();
/// By name; absent where there is none.
const Framework* find_framework(std::string_view name);
/// By name; throws UsageError naming the known ones.
const Framework& framework_by_name(std::string_view name);
/// Facts of the built-in framework of that name; without one, the defaults.
FrameworkFacts facts_of(std::string_view name);
/// All that there are, by name.
const std::vector<Framework>& all_frameworks();
std::string known_frameworks();  ///< their names, with commas between

/// The built-in framework of that name, or the one that the file at that path describes, which has
/// a name of its own. Throws UsageError, InputError.
Framework read_framework(const std::string& name_or_path);

}  // namespace plimsoll
