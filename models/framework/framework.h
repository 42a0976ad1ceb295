// A Framework describes how an executor runs ops: the passes lower for it, and the cost model
// charges for it.
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

/// An AttentionKernel is a release of flash attention. The rates of cluster files are those of
/// kernels that use all that the GPU has.
enum class AttentionKernel : std::uint8_t {
  native,   ///< cuDNN or FlashAttention-3 on Hopper, the newest kernel elsewhere
  flash_2,  ///< FlashAttention-2, which PyTorch's scaled_dot_product_attention contains
  flash_1,  ///< FlashAttention of 2022
  triton,   ///< the same of 2022, written in Triton
};

/// BiasKernels are the kernels that may add a linear layer's bias: the first of these that applies,
/// else a kernel for the bias alone. They do not exclude each other: a layer has at most one of the
/// two readers.
struct BiasKernels {
  bool in_gelu = false;   ///< the GELU after the layer adds it, forward and backward
  bool in_add = false;    ///< the residual add after the layer adds it
  bool in_matmul = true;  ///< the layer's matmul adds it
  bool operator==(const BiasKernels&) const = default;
};

/// `separate_qkv` and `masks_f32_apart` only matter without flash attention.
struct AttentionKernels {
  /// Attention is one kernel that keeps no scores (Dao 2022, arXiv 2205.14135). Without it,
  /// attention is matmul, softmax and matmul.
  bool flash = false;
  AttentionKernel kernel = AttentionKernel::native;  ///< that kernel
  /// Attention over parts of sequences that ranks share (Strategy::cp) is such a kernel, too.
  /// Without it, it is where `flash` is.
  bool by_parts = false;
  /// Query, key and value come from three linear layers, where the job has one for all three and no
  /// rotary embedding.
  bool separate_qkv = false;
  /// A separate kernel masks f32 scores before their softmax; the softmax masks 16-bit scores
  /// itself.
  bool masks_f32_apart = false;
  /// Keys and values of groups of queries are repeated for each query head before attention. With
  /// parallelism.sums_parts_in_f32 that is before ranks exchange them (Strategy::cp). Backward
  /// reads them so.
  bool repeats_keys = false;
  bool operator==(const AttentionKernels&) const = default;
};

struct ElementwiseKernels {
  /// GELU without a fused bias, SwiGLU and norms are formulas of several ops, and norms and softmax
  /// compute in f32. Each op keeps the values that its backward reads. Rotary embeddings are
  /// several ops, too.
  bool by_op = false;
  bool fused_norms =
      false;  ///< with by_op, a norm is still one kernel (apex, flash_attn's rms_norm)
  /// With by_op, scale, mask and softmax of scores are still one kernel in 16 bits (Megatron-LM's
  /// megatron/fused_kernels).
  bool fused_softmax = false;
  bool operator==(const ElementwiseKernels&) const = default;
};

struct ProductKernels {
  /// Products of f32 operands round them to TF32 where the device can (NVIDIA's PyTorch containers,
  /// torch.backends.cuda.matmul.allow_tf32).
  bool tf32 = false;
  /// Forward keeps the inputs of 8-bit products uncast, and backward casts them again (torchao).
  /// Without it they are kept in 8 bits (Transformer Engine). It only matters with scales of
  /// blocks, which both have; the other recipes are of one of them.
  bool casts_inputs_again = false;
  /// Products read 8-bit operands with one scale for a tensor as they lie. Without it they need the
  /// inner dimension of both to be contiguous, so that copies are transposed. Devices that multiply
  /// so set it (GpuGeneration::untransposed_fp8).
  bool untransposed_fp8 = false;
  /// The rows of each expert are multiplied by a kernel for this expert. Without it one kernel
  /// multiplies the rows of all experts.
  bool experts_apart = false;
  /// A matmul adds to the gradient of its weight (apex fused_weight_gradient_mlp_cuda). Without it,
  /// each gradient of a micro-batch is a tensor until another kernel has added it.
  bool add_gradients = true;
  bool operator==(const ProductKernels&) const = default;
};

/// Every framework here runs layer norm and the masked softmax of 16 bits as one kernel each (the
/// score matmul has the scale). So there is no field for these.
struct FrameworkKernels {
  BiasKernels bias;
  AttentionKernels attention;
  ElementwiseKernels elementwise;
  ProductKernels products;
  /// One kernel sums the squares of a tensor. Without it there are two, with the squares in memory
  /// between them.
  bool squared_norm = true;
  /// Dropout writes a mask of one byte per element, which backward reads (arXiv 2205.05198, section
  /// 4.1). Without it backward draws the mask again. Flash attention always draws its mask again.
  bool stores_dropout_masks = false;
  bool operator==(const FrameworkKernels&) const = default;
};

/// Graphs are what the framework captures as CUDA graphs. The host replays a graph with one op; the
/// one replay of a whole step counts as none.
enum class Graphs : std::uint8_t {
  nothing,
  router,     ///< each router with its norm, up to where tokens are sent to experts
  attention,  ///< the forward and the backward of each layer's ops up to its attention or its
              ///< router
  layers,     ///< each block's forward, and each block's backward
  step,       ///< all forwards and backwards of a step
};

/// TransfersHold is what a pipeline transfer blocks in addition to the ops that read it.
enum class TransfersHold : std::uint8_t {
  nothing,  ///< transfers have separate streams
  compute,  ///< kernels that are issued after a transfer begin when it has ended
  host,     ///< the host waits until everything on its device has ended
};

struct HostDispatch {
  /// Host time to issue one op (a kernel or a communication) where no calibration measured it. The
  /// kernel of a module of Megatron-LM or Transformer Engine is one op, with all that the module
  /// does on the host.
  Seconds op;
  /// The number of ops that the framework issues for one kernel of a block's forward, recompute or
  /// backward. It counts reshapes, transposes, scales, gradient sums and casts of activations as
  /// separate ops. Casts of parameters, merges of gradients, the optimizer and communications
  /// count one each.
  double ops_per_kernel = 1;
  /// The number of ops for one op of a mixture of experts: the router's choice, the placement, and
  /// exchanges, copies and products of rows.
  double ops_per_expert_op = 1;
  /// The number of ops for attention over one part of a sequence that ranks share (Strategy::cp),
  /// in a ring. It is the same in backward, which is no less in Python than forward.
  double ops_per_part = 1;
  /// The host time of an op of backward relative to another op. Communications are excluded:
  /// autograd's engine calls backward from C++, but communications from Python.
  double backward = 1;
  /// The number of ops that the update issues for each parameter tensor that a rank updates: views,
  /// copies between types, lists for fused kernels, counts that are logged.
  double ops_per_tensor = 0;
  Graphs graphs = Graphs::nothing;
  /// Additional host time for a gather of parameters in the middle of a step (sharding stage 3).
  Seconds gather;
  /// Additional host time for each parameter gradient that a micro-batch's backward completes: the
  /// time of its hook.
  Seconds gradient;
  bool operator==(const HostDispatch&) const = default;
};

/// When the host waits for its device before it issues more, if streams run by themselves.
/// Consecutive transfers are one exchange, which blocks once. Where stages hold several parts of
/// the model, only receives block, since two neighbours exchange at different places in their
/// order.
struct HostWaits {
  TransfersHold transfers_hold = TransfersHold::nothing;
  /// The host reads the norm of the gradients, and whether they are finite, before it goes on.
  bool for_norm = false;
  /// Before a micro-batch's forward, on every stage, the host reads from the device how large the
  /// sequences are. It waits for all ops that the compute stream has been given.
  bool for_batch = false;
  bool for_gathers = false;  ///< for each gather of parameters
  /// The host waits for the number of rows that each expert gets, before it issues an exchange of
  /// rows, or the products of experts. A host that waits before the exchange does not wait again
  /// before the products.
  bool before_exchange = false, before_products = false;
  /// The host waits for each op before it issues the next, as with CUDA_LAUNCH_BLOCKING=1.
  /// Transfers block once for each exchange.
  bool for_launches = false;
  Seconds time;  ///< from the end of the awaited work until the host goes on
  bool operator==(const HostWaits&) const = default;
};

struct FrameworkHost {
  HostDispatch dispatch;
  HostWaits waits;
  bool operator==(const FrameworkHost&) const = default;
};

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
  /// As own_type, for one of kLossParts parts of the tokens after the other, whose gradients are
  /// used before the next ones are made (torchtune, modules/loss/ce_chunked_output_loss.py).
  own_type_in_parts,
};
inline constexpr std::int64_t kLossParts = 8;
inline constexpr std::string_view kLossMemories[] = {
    "new_gradient", "in_place",         "fused", "by_op", "gathered_by_op",
    "own_type",     "own_type_in_parts"};

/// GradientMemory is how gradients of the step lie in memory. Programs have them in f32 in one
/// buffer, and their reductions are costed so.
enum class GradientMemory : std::uint8_t {
  one_buffer,
  /// Without other ranks that sum them, gradients of a layer exist from its first backward of a
  /// step to the update (PyTorch torch.optim.Optimizer.zero_grad, set_to_none). Else as one_buffer.
  by_layer,
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
  bool operator==(const FrameworkMemory&) const = default;
};

/// These run while a collective or a transfer does.
struct CollectiveOverlap {
  /// Gradient buckets are reduced while the last micro-batch's backward still runs. Without it all
  /// gradients are reduced afterwards as one buffer, and grad_bucket_bytes has no effect.
  bool grad_reduce = true;
  /// Parameters are gathered in the next step, while its first forwards run. Without it they are
  /// gathered at the end of the step. It only matters with sharding_degree > 1.
  bool param_gather = false;
  /// The gradient of a column-parallel layer's input is summed over mp while the gradient of its
  /// weight is computed.
  bool tensor_gradients = false;
  /// A gather over mp overlaps the products that read its rows, and a scatter overlaps the product
  /// that makes its rows. Both go on part by part, with one part for each rank
  /// (simulator/costs/async_products.h).
  bool async_tensor_parallel = false;
  /// With virtual stages, the input of a computation is received while the computation before it
  /// runs. Else, and without virtual stages, it is received after that computation.
  bool receives_ahead = false;
  /// Ranks that share sequences (Strategy::cp) begin an exchange when they need its result, so no
  /// kernel overlaps with it.
  bool awaits_exchanges = false;
  bool operator==(const CollectiveOverlap&) const = default;
};

struct FrameworkParallelism {
  /// The framework pads the vocabulary to a multiple of this times mp. Published runs are predicted
  /// with this padding. Commands search mp, so they pad a job to a multiple of this. Programs alone
  /// pad to a multiple of mp.
  std::int64_t vocabulary_multiple = 1;
  CollectiveOverlap overlap;
  bool sequence_parallel = true;  ///< the framework can split tokens over mp (arXiv 2205.05198)
  /// Backward gathers tokens over mp again. Without it, the whole tokens that forward or recompute
  /// gathered are kept (arXiv 2205.05198, section 4.2.2). It only matters with sequence_parallel.
  bool gathers_tokens_again = true;
  /// With recompute per_op, tensors of the kept ops stay even if backward does not read them.
  bool keeps_unread = false;
  /// Recompute repeats every op, as torch.utils.checkpoint with reentry does. Without it, recompute
  /// repeats only the ops whose values backward reads.
  bool recompute_repeats_all = false;
  /// Ranks that share sequences (Strategy::cp) sum outputs and gradients of parts in f32, and send
  /// sums of keys' gradients in f32. They read gathered keys and values part by part, too, and
  /// backward begins with a rank's own.
  bool sums_parts_in_f32 = false;
  /// A token travels once to each node that has experts of it, and there once to each rank. The
  /// rank copies it for its experts. Without it each of the token's rows travels by itself.
  bool sends_tokens_once_per_node = false;
  /// Rows that have been exchanged lie in the order of the ranks that they came from. A kernel
  /// sorts them by expert before the products, and another restores their order before they return.
  /// Without it the exchange itself puts each row in its place.
  bool sorts_exchanged_rows = false;
  bool operator==(const FrameworkParallelism&) const = default;
};

/// The source of each group of fields in files: a document, code or a measurement.
struct FrameworkSources {
  std::string kernels, parallelism;
  std::string dispatch, waits;  ///< of the host; waits is empty if it never waits
  std::string memory;           ///< of the workspace, the context and communicators
  std::string allocator;        ///< and of what it allocates in addition to the Program's tensors
  bool operator==(const FrameworkSources&) const = default;
};

/// RunsOn names the devices on which planner-run executes Programs lowered for a framework.
enum class RunsOn : std::uint8_t { nothing, cpu_cores, gpus };

/// FrameworkFacts are facts about a framework other than how it runs ops. Plan files leave them
/// out, since they follow from the framework's name.
struct FrameworkFacts {
  /// The framework whose fits also hold for this one, since both are equal in all that fits change.
  /// Empty: only its own fits hold.
  Sourced<std::string> calibrated_as;
  /// Whether rates typical of training predict its steps better than the rates that kernels reach
  /// alone.
  Sourced<bool> typical_rates{true};
  RunsOn runs_on = RunsOn::nothing;
  bool operator==(const FrameworkFacts&) const = default;
};

struct Framework {
  std::string name;
  Capabilities can;  ///< the strategies that the framework can run
  FrameworkKernels kernels;
  FrameworkParallelism parallelism;
  FrameworkHost host;
  FrameworkMemory memory;
  FrameworkSources sources;
  FrameworkFacts facts;
  bool operator==(const Framework&) const = default;
};

/// Returns the rows of the vocabulary over mp ranks, padded as the framework does it.
std::int64_t padded_vocabulary(std::int64_t rows, const Framework& framework, std::int64_t mp);
/// Returns whether two frameworks lower to the same Programs: they differ at most in host times and
/// in memory that no tensor shows, which calibrations state.
bool lowers_alike(Framework a, const Framework& b);

/// Returns whether planner-run can execute Programs that are lowered for the framework.
bool runs_here(const Framework& framework);
/// Returns the name of the framework whose fitted calibrations hold for this one.
std::string calibrated_as(const Framework& framework);

// The built-in frameworks are in models/presets/frameworks.

/// Returns the bundled runtime (planner-run) on CPU cores. Its Programs run on every backend.
const Framework& bundled_framework();
/// Returns the bundled runtime with the kernels of its cuda backend.
const Framework& bundled_cuda_framework();
/// Returns the framework of that name, or null where there is none.
const Framework* find_framework(std::string_view name);
/// Returns the framework of that name. Throws UsageError naming the known ones.
const Framework& framework_by_name(std::string_view name);
/// Returns the facts of the built-in framework of that name, or the defaults where there is none.
FrameworkFacts facts_of(std::string_view name);
/// Returns all built-in frameworks, ordered by name.
const std::vector<Framework>& all_frameworks();
std::string known_frameworks();  ///< their names, with commas between

/// Returns the built-in framework of that name, or the framework that the file at that path
/// describes, which has a name of its own. Throws UsageError and InputError.
Framework read_framework(const std::string& name_or_path);

}  // namespace plimsoll
